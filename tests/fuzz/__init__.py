"""Random damage to every kind of file that the toolkit reads: python -m tests.fuzz --help."""

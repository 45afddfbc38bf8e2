"""Makes, mixes and masks records, and reads them in batches."""

# Modules that other rooms and commands may import.
__all__ = (
    "beam_runner",
    "dynamic_masking",
    "input_options",
    "input_pipeline",
    "inspection",
    "instance_files",
    "instance_shards",
    "instances",
    "masking",
    "record_files",
    "record_values",
    "sentence_pairs",
    "sequence_formats",
    "tfrecord",
)

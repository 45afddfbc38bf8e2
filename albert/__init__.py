"""ALBERT pre-training and fine-tuning on TensorFlow 2."""

__version__ = "1.0.0"

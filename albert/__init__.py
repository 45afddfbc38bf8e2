"""ALBERT pre-training and fine-tuning on TensorFlow 2."""

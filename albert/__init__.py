"""ALBERT pre-training and fine-tuning on TensorFlow 2.

The modules of this folder are commands (`run_…`, `create_pretraining_data`, `serve` and so on) and
names that users import (`modeling`, `optimization` and so on). The implementation is in the rooms,
the sub-packages next to them.
"""

__version__ = "1.0.0"

"""Holds the network, its weights in all formats, and the folder of a model.

Letters in the shapes of this room: B batch, S sequence, T computed rows (tokens),
R computed positions of a sequence, V vocabulary, E embedding, H hidden, L layers,
N attention heads, D head size (H / N), I intermediate, P masked positions, C choices; K starts
kept and M ends kept for each start (SQuAD v2).
"""

# Modules that other rooms and commands may import.
__all__ = (
    "batching",
    "checkpoints",
    "configuration",
    "decision",
    "encoder",
    "head_config",
    "heads",
    "huggingface",
    "kernels",
    "label_scale",
    "layers",
    "model_folder",
    "pooling",
    "prepared_weights",
    "pretraining_heads",
    "published",
    "saved_model_files",
    "sources",
    "student_weights",
    "tensor_batching",
    "token_rows",
    "weight_names",
)

"""The keras-hub side of `training_step.py`; runs in a virtual environment of its own.

    python peer_keras_hub.py batches.npz config.json train|infer float32|bfloat16 graph|xla

For each line of standard input it computes all batches once and prints how many seconds that took.
"""

import json
import os
import sys
import time

os.environ["KERAS_BACKEND"] = "tensorflow"

import keras
import keras_hub
import numpy as np
import tensorflow as tf


def main():
    path, config_path, mode, dtype, how = sys.argv[1:]
    with open(config_path, encoding="utf-8") as file:
        values = json.load(file)
    keras.config.set_dtype_policy("mixed_bfloat16" if dtype == "bfloat16" else "float32")
    backbone = keras_hub.models.AlbertBackbone(
        vocabulary_size=values["vocab_size"],
        num_layers=values["num_hidden_layers"],
        num_heads=values["num_attention_heads"],
        embedding_dim=values["embedding_size"],
        hidden_dim=values["hidden_size"],
        intermediate_dim=values["intermediate_size"],
        dropout=values["hidden_dropout_prob"],
        max_sequence_length=values["max_position_embeddings"],
        num_segments=values["type_vocab_size"],
    )
    model = keras_hub.models.AlbertTextClassifier(backbone, num_classes=2)
    model.compile(
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        optimizer=keras.optimizers.AdamW(1e-5, global_clipnorm=1.0),
        jit_compile=how == "xla",
    )
    infer = tf.function(lambda x: model(x, training=False), jit_compile=how == "xla")
    arrays = np.load(path)
    count = len([name for name in arrays.files if name.startswith("input_ids")])
    batches = [
        (
            {
                "token_ids": arrays[f"input_ids_{i}"],
                "segment_ids": arrays[f"segment_ids_{i}"],
                "padding_mask": arrays[f"input_mask_{i}"],
            },
            arrays[f"label_ids_{i}"],
        )
        for i in range(count)
    ]
    for _ in sys.stdin:
        started = time.perf_counter()
        for features, labels in batches:
            if mode == "infer":
                float(tf.reduce_sum(infer({name: tf.constant(x) for name, x in features.items()})))
            else:
                model.train_on_batch(features, labels)
        print(time.perf_counter() - started, flush=True)


if __name__ == "__main__":
    main()

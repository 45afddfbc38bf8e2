"""Uses a hub module as Keras programs do; TF_USE_LEGACY_KERAS=1 makes tf.keras the Keras of hub.

python keras_program.py hub_module outputs.npz
"""

import sys

import numpy as np
import tensorflow as tf
import tensorflow_hub as hub

path, output_file = sys.argv[1:]
seq_length = 128
NAMES = ("input_word_ids", "input_mask", "input_type_ids")
encoder_inputs = dict(  # noqa: C408
    input_word_ids=tf.keras.layers.Input(shape=(seq_length,), dtype=tf.int32),
    input_mask=tf.keras.layers.Input(shape=(seq_length,), dtype=tf.int32),
    input_type_ids=tf.keras.layers.Input(shape=(seq_length,), dtype=tf.int32),
)
encoder = hub.KerasLayer(path, trainable=True)
outputs = encoder(encoder_inputs)
pooled_output = outputs["pooled_output"]
sequence_output = outputs["sequence_output"]
encoder_outputs = outputs["encoder_outputs"]

logits = tf.keras.layers.Dense(2)(pooled_output)
classifier = tf.keras.Model(encoder_inputs, logits)
vectors = tf.keras.Model(encoder_inputs, [pooled_output, sequence_output, *encoder_outputs])
classifier.compile(
    tf.keras.optimizers.SGD(0.05), tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
)

rng = np.random.default_rng(1)
mask = np.ones([8, seq_length], np.int32)
mask[5:, 40:] = 0
ids = rng.integers(5, 400, mask.shape).astype(np.int32) * mask
types = rng.integers(0, 2, mask.shape).astype(np.int32) * mask
inputs = dict(zip(NAMES, (ids, mask, types), strict=True))
labels = np.array([0, 1] * 4)

pooled, sequence, *layers = vectors(inputs)
before = classifier.evaluate(inputs, labels, verbose=0)
classifier.train_on_batch(inputs, labels)
after = classifier.evaluate(inputs, labels, verbose=0)
np.savez(
    output_file,
    **inputs,
    pooled_output=pooled,
    sequence_output=sequence,
    encoder_outputs=np.stack(layers),
    losses=[before, after],
    trained=len(encoder.trainable_weights),
)

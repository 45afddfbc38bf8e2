"""Our side of `latency`: a process that answers commands, see `peer_sides.answer_commands`.

python -m benchmarks.serving.own_side training_folder float32|bfloat16 auto threads batches.json
python -m benchmarks.serving.own_side serving_folder exported runtime threads batches.json
"""

import sys

import numpy as np
import tensorflow as tf

from albert.serving import inference, predictors
from benchmarks.serving import peer_sides


def main():
    folder, precision, runtime, threads, batches_file = sys.argv[1:]
    tf.config.threading.set_intra_op_parallelism_threads(int(threads))
    tf.config.threading.set_inter_op_parallelism_threads(int(threads))
    model = inference.find(folder)
    if precision != "exported":
        model = model.in_precision(precision)
    predictor = predictors.TextPredictor(model, runtime, int(threads))

    def predict(texts):
        rows = predictor.predict(texts, peer_sides.BATCH_SIZE, predictor.batches_ahead)
        return np.stack([list(row.probabilities.values()) for row in rows])

    peer_sides.answer_commands(predict, batches_file)


if __name__ == "__main__":
    main()

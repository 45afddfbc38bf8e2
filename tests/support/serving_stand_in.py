"""A server of a model that needs no TensorFlow, for the tests that stop and disturb it.

    python -m tests.support.serving_stand_in PORT SECONDS [slow|broken|patient]

Each text takes SECONDS; the reply is the text. "slow": loading also takes as long, and waits for no
longer than it may continue; "broken": loading fails; "patient": clients have five seconds
instead of one to send a request.
"""

import dataclasses
import sys
import time

import numpy as np

from albert.io import file_io
from albert.model import batching
from albert.serving import requests, tensors


@dataclasses.dataclass
class EchoModel:
    """Answers texts with themselves.

    Attributes:
      seconds: that each text takes.
      form, max_seq_length, kind, labels, outputs, ids: see `served_model.ServedModel`.
    """

    seconds: float = 0.0
    form: requests.RequestSchema = requests.ONE_TEXT
    max_seq_length: int = 64
    kind: str = "classifier"
    labels: tuple = ("a", "b")
    outputs: tuple = (tensors.PREDICTION, tensors.probabilities(2), tensors.RESULT)
    ids: object = None

    def abstention(self):
        return None

    def answer(self, examples):
        for example in examples:
            time.sleep(self.seconds)
            if "broken" in example.values():
                raise RuntimeError("a mistake of the model")
            if "overflow" in example.values():
                batching.check_finite({"logits": np.array([np.nan])})
            if "refused" in example.values():
                raise file_io.InputError("text: the model refuses it")
        return [{"prediction": example["text"]} for example in examples]


def main(port, seconds, how=""):
    from albert.serving import server

    def load(go_on):
        if how == "broken":
            raise file_io.InputError("there is no model")
        while how == "slow" and go_on():
            time.sleep(0.01)
        return EchoModel(float(seconds))

    read_timeout = 5.0 if how == "patient" else 1.0
    server.run(server.Settings(port=int(port), read_timeout=read_timeout), load)


if __name__ == "__main__":
    from absl import logging

    logging.set_verbosity(logging.INFO)
    main(*sys.argv[1:])

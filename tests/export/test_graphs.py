"""Functions of fine-tuned models for exports."""

import numpy as np
import tensorflow as tf

from albert.export import graphs
from albert.tasks.squad import task as squad_task
from tests.support import serving_samples


def test_padding_is_never_the_start_of_an_answer(tmp_path):
    trained = serving_samples.trained_in(tmp_path, squad_task.V1)
    function = graphs.ExportedModel(trained).function(2, 9)
    assert function.input_signature == tuple(
        tf.TensorSpec([2, 9], tf.int32, name) for name in ("input_ids", "input_mask", "segment_ids")
    )
    features = serving_samples.features(squad_task.V1, 2, 9)
    found = function(*map(tf.constant, features.values()))
    assert set(found) == {"start_logits", "end_logits"}
    for scores in found.values():
        np.testing.assert_array_equal(
            scores.numpy() == np.float32(-1e30), 1 - features["input_mask"]
        )


def test_what_has_no_labels_names_none(tmp_path):
    made = {
        kind: graphs.ExportedModel(serving_samples.trained_in(tmp_path / kind, kind))
        for kind in ("classifier", "regression", "multiple_choice")
    }
    assert made["classifier"].labels == ("bad", "fine", "good")
    assert not made["regression"].labels and not made["multiple_choice"].labels
    assert made["regression"].outputs == ("predictions", "probabilities")

"""SavedModels of strangers and damaged ones are refused before anything of them runs."""

import pytest
import tensorflow as tf

from albert.export import saved_model_export
from albert.io import file_io
from albert.serving import saved_model_runtime, serving_folder
from tests.support import serving_samples

NAMES = ("input_ids", "input_mask", "segment_ids")


@pytest.fixture
def folder(tmp_path):
    trained = serving_samples.trained_in(tmp_path / "run", "classifier", num_hidden_layers=1)
    with serving_folder.creating(str(tmp_path / "out"), trained, "saved_model", "float32") as made:
        saved_model_export.write(made, trained, with_texts=False)
    return serving_folder.read(str(tmp_path / "out"))


def save(folder, answer, names=NAMES):
    """Puts another program in the place of the model."""
    specs = [tf.TensorSpec([None, None], tf.int32, name=name) for name in names]
    module = tf.Module()

    @tf.function(autograph=False)
    def inner(ids):
        return {"predictions": answer(ids), "probabilities": tf.zeros([1])}

    module.serve = tf.function(
        lambda *inputs: inner(inputs[0]), input_signature=specs, autograph=False
    )
    file_io.remove(folder.model_file)
    signatures = {"serving_default": module.serve}
    tf.saved_model.save(module, folder.model_file, signatures=signatures)


def test_a_program_that_reads_files_is_not_run(folder):
    save(folder, lambda ids: tf.io.read_file("/etc/passwd"))
    with pytest.raises(file_io.InputError, match="saved_model has the operation ReadFile"):
        saved_model_runtime.load(folder)


def test_a_model_of_other_inputs_is_refused(folder):
    save(folder, lambda ids: ids, ("tokens",))
    with pytest.raises(file_io.InputError, match="signature serving_default of input_ids, input_m"):
        saved_model_runtime.load(folder)


@pytest.mark.parametrize("name", ["saved_model.pb", "variables/variables.index"])
def test_damaged_models_are_named(folder, name):
    path = f"{folder.model_file}/{name}"
    with file_io.open_file(path, "rb") as file:
        content = file.read()
    with file_io.open_file(path, "wb") as file:
        file.write(content[: len(content) // 2])
    with pytest.raises(file_io.InputError, match="saved_model.* damaged"):
        saved_model_runtime.load(folder)

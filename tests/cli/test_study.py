"""Flags of studies: what contradicts itself, and the head of a run in an existing folder."""

import pytest

from albert.cli import fine_tuning
from albert.io import file_io
from albert.model import configuration, head_config, layers
from tests.support import builders, command_lines

SCRIPTS = ("run_classifier", "run_race", "run_squad_v1", "run_squad_v2")
REQUIRED = {
    "run_classifier": {"task_name": "SST-2", "do_predict": True},
    "run_race": {"data_dir": "x"},
    "run_squad_v1": {"train_file": "x", "predict_file": "x", "do_predict": True},
    "run_squad_v2": {"train_file": "x", "predict_file": "x", "do_predict": True},
}


def settings_of(script, **values):
    required = {"output_dir": "nowhere", "do_train": True, **REQUIRED.get(script, {})}
    return command_lines.read(script, **{**required, **values})


def check(script, **values):
    settings_of(script, **values).check()


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"train_fraction": 0}, "train_fraction=0.0 must be a fraction"),
        ({"eval_fraction": 1.1}, "eval_fraction=1.1 must be a fraction"),
        ({"head_activation": "tanh"}, "--head_activation: only for a layer of --head_hidden_size"),
        ({"cache_encoder_outputs": True}, "--cache_encoder_outputs: only for --freeze_encoder"),
        (
            {"freeze_encoder": True, "encoder_cache_dir": "x"},
            "--encoder_cache_dir: only for --cache_encoder_outputs",
        ),
        (
            {"freeze_encoder": True, "recompute": True},
            r"--recompute: only for an encoder that is trained \(--freeze_encoder\)",
        ),
        ({"freeze_encoder": True, "hidden_dropout_prob": 0.1}, "--hidden_dropout_prob: only for"),
        ({"freeze_encoder": True, "estimate_memory": True}, "leave out --freeze_encoder"),
        ({"freeze_encoder": True, "do_train": False}, "--freeze_encoder needs --do_train"),
        (
            {"freeze_encoder": True, "cache_encoder_outputs": True, "checkpoint": "model.ckpt-1"},
            "--checkpoint=model.ckpt-1 may have another encoder",
        ),
    ],
)
def test_contradictions_are_refused(script, values, message):
    with pytest.raises(file_io.InputError, match=message):
        check(script, **values)


def test_what_belongs_together_is_taken():
    frozen = {"freeze_encoder": True, "cache_encoder_outputs": True, "encoder_cache_dir": "x"}
    for values in ({}, frozen, {"head_hidden_size": 8, "head_activation": "tanh"}):
        check("run_squad_v1", **values)
    assert set(configuration.ACTIVATIONS) == set(layers.ACTIVATIONS)


def test_random_weights_of_another_seed_are_not_those_of_the_cache():
    frozen = {"freeze_encoder": True, "cache_encoder_outputs": True}
    for others, is_refused in (({}, False), ({"from_scratch": True}, True)):
        check("run_race", **frozen, **others)
        if is_refused:
            with pytest.raises(file_io.InputError, match="leave out --num_restarts"):
                check("run_race", **frozen, **others, num_restarts=2)
        else:
            check("run_race", **frozen, **others, num_restarts=2)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"distill_weights": "5,2,1"},
            "--distill_weights=5,2,1: .* weights from the third on must be 0",
        ),
        ({"cache_encoder_outputs": True}, "the --teacher reads each text at every step"),
    ],
)
def test_a_teacher_and_a_frozen_encoder(values, message, tmp_path):
    given = {"freeze_encoder": True, "teacher": "t", "distill_weights": "1,0,0"}
    given["albert_config_file"] = "x"
    (tmp_path / "model.json").write_text('{"settings": {"head_hidden_size": 3}}')
    given["teacher"] = tmp_path
    check("run_classifier", **given, head_hidden_size=3)
    with pytest.raises(file_io.InputError, match="has --head_hidden_size=3, .* run no --head_hid"):
        check("run_classifier", **given)
    given["teacher"] = "t"
    check("run_classifier", **given)
    with pytest.raises(file_io.InputError, match=message):
        check("run_classifier", **given | values)


def test_the_head_is_that_of_the_flags_or_of_the_folder(tmp_path):
    def head(**values):
        return fine_tuning.find_head(settings_of("run_race", output_dir=tmp_path, **values))

    expected = head_config.Head(8, "tanh", "linear", 0.0)
    assert head() == head(head_hidden_size=0) == head_config.NO_LAYER
    assert head(head_hidden_size=8, head_activation="tanh") == expected
    settings = {"head_hidden_size": 8, "head_activation": "tanh", "max_seq_length": 32}
    file_io.write_json(str(tmp_path / "model.json"), {"settings": settings})
    # Prediction takes what is there; training starts again, but does not resume another.
    assert head(do_train=False) == expected
    assert head(do_train=False, head_hidden_size=0) == head_config.NO_LAYER
    assert head() == head_config.NO_LAYER
    (tmp_path / "model.ckpt-3.index").touch()
    assert head(head_hidden_size=8, head_activation="tanh") == expected
    with pytest.raises(file_io.InputError, match="--head_hidden_size=8, .* no --head_hidden_size"):
        head()
    with pytest.raises(file_io.InputError, match="head_activation=tanh.*head_activation=relu"):
        head(head_hidden_size=8)


def test_the_pooling_is_that_of_the_flag_or_of_the_model(tmp_path):
    """The flag comes first, then the run's own folder, the teacher's, and the initial model's."""
    folders = {name: tmp_path / name for name in ("sentences", "trained", "own")}
    for folder in folders.values():
        folder.mkdir()
    builders.write_pooling(folders["sentences"])
    file_io.write_json(str(folders["trained"] / "model.json"), {"settings": {"pooling": "mean"}})

    def pooling(command="run_classifier", **values):
        values = {"output_dir": folders["own"], **values}
        return fine_tuning.find_head(settings_of(command, **values)).pooling

    weights = folders["sentences"] / "model.safetensors"
    weights.touch()
    assert pooling() == "cls"
    assert pooling(init_checkpoint=weights) == "mean"
    assert pooling(init_checkpoint=folders["sentences"], pooling="cls") == "cls"
    assert pooling(teacher=folders["trained"]) == "mean"
    assert pooling("run_race", init_checkpoint=weights) == "cls"
    # A folder that was trained has the say: nothing is evaluated or resumed with another.
    own = str(folders["own"] / "model.json")
    file_io.write_json(own, {"settings": {"pooling": "mean"}})
    assert pooling(do_train=False) == "mean"
    with pytest.raises(file_io.InputError, match="a run with no .*--pooling=mean, but this run"):
        pooling(do_train=False, pooling="cls")
    file_io.write_json(own, {"settings": {}})
    assert pooling(init_checkpoint=weights) == "cls"
    (folders["own"] / "model.ckpt-3.index").touch()
    with pytest.raises(file_io.InputError, match="this run would have no .*, --pooling=mean"):
        pooling(pooling="mean")


def test_selections_are_those_of_both_files():
    settings = settings_of(
        "run_squad_v2", answerable_only=True, drop_longer_than=99, train_fraction=0.2, seed=4
    )
    train, predict = settings.selections()
    shared = {"answerable_only": True, "drop_longer_than": 99}
    assert train.settings == {**shared, "train_fraction": 0.2, "seed": 4}
    assert predict.settings == shared

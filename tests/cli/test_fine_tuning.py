"""The part that all fine-tuning scripts share."""

import json

import pytest

from albert import run_classifier, run_race, run_squad_v1, run_squad_v2, run_token_classifier
from albert.cli import command_flags, fine_tuning, fine_tuning_settings, options, squad
from albert.io import file_io
from albert.model import head_config, sources
from albert.text import text_rules
from tests.support import command_lines


@pytest.mark.parametrize(
    "script", [run_classifier, run_token_classifier, run_race, run_squad_v1, run_squad_v2]
)
def test_every_script_has_them(script):
    assert issubclass(script.Settings, fine_tuning_settings.Settings)
    assert set(options.names(fine_tuning_settings.Settings)) <= set(options.names(script.Settings))


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("--optimizer=adam", "weight_decay_rate"),
        ("--hidden_dropout_prob=2", "--hidden_dropout_prob=2"),
        ("--stuck_after=2", "--stuck_after=2"),
        ("--train_fraction=0", "train_fraction"),
    ],
)
def test_each_group_is_checked(argument, message):
    more = ["--weight_decay_rate=0.1"] if "adam" in argument else []
    words = ["--output_dir=out", "--predict_file=x", "--do_predict", argument, *more]
    with pytest.raises(file_io.InputError, match=message):
        command_lines.read(run_squad_v1, *words).check()


# --- how many checkpoints are kept ---------------------------------------------------------------

RUNS = {
    "classifier": (run_classifier, "keep_checkpoint_max", "do_eval"),
    "token classifier": (run_token_classifier, "keep_checkpoint_max", "do_eval"),
    "race": (run_race, "num_keep_checkpoint", "do_eval"),
    "squad 1.1": (run_squad_v1, "keep_checkpoint_max", "do_predict"),
    "squad 2.0": (run_squad_v2, "keep_checkpoint_max", "do_predict"),
}
REQUIRED = {run_classifier: {"task_name": "SST-2"}, run_race: {"data_dir": "data"}}


CUSTOM = {"task_name": "custom", "do_train": True, "do_eval": True, "output_dir": "out"}
TASK = {"task_name": "MRPC", "data_dir": "glue", "do_train": True, "output_dir": "out"}


@pytest.mark.parametrize(
    ("flags", "examples", "expected"),  # steps, steps of warm-up, steps between checkpoints
    [
        (CUSTOM, 300, (200, 20, 10)),
        (CUSTOM, 32_000, (3000, 300, 1000)),
        (CUSTOM | {"train_fraction": 0.5}, 32_000, (1500, 150, 500)),
        (CUSTOM | {"train_fraction": 0.29, "num_train_epochs": 32.0}, 100, (29, 2, 2)),
        (CUSTOM | {"num_train_epochs": 40.0}, 320, (400, 40, 20)),
        (CUSTOM | {"train_step": 50, "warmup_step": 0}, 320, (50, 0, 10)),
        (CUSTOM | {"train_step": 50, "save_checkpoints_steps": 7}, 320, (50, 5, 7)),
        (CUSTOM | {"do_eval": False}, 320, (200, 20, 1000)),
        (TASK, None, (1000, 0, 1000)),
        (TASK | {"warmup_proportion": 0.06}, None, (1000, 60, 1000)),
        (TASK | {"num_train_epochs": 2.5, "train_batch_size": 16}, 3668, (573, 0, 1000)),
    ],
)
def test_the_length_of_training(flags, examples, expected):
    values = command_lines.parse(run_classifier, **flags)
    settings = options.read(run_classifier.Settings, values)
    settings = settings.with_steps(lambda: examples, flags["task_name"] == "custom")
    assert (settings.train_step, settings.warmup_step, settings.save_checkpoints_steps) == expected


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_train_epochs": 3.0, "train_step": 9}, "--num_train_epochs or --train_step"),
        ({"warmup_proportion": 0.1, "warmup_step": 9}, "--warmup_proportion or --warmup_step"),
        ({"num_train_epochs": 0.01}, "31 training examples, .*--num_train_epochs=0.01 give no"),
        ({"num_train_epochs": 0.0}, "--num_train_epochs=0.0 must be above 0"),
        ({"warmup_proportion": 1.5}, "--warmup_proportion=1.5 must be between 0 and 1"),
    ],
)
def test_lengths_that_contradict_or_do_not_exist_are_refused(changes, message):
    values = command_lines.parse(run_classifier, **{**CUSTOM, **changes})
    with pytest.raises(file_io.InputError, match=message):
        settings = options.read(run_classifier.Settings, values)
        settings.check()
        settings.with_steps(lambda: 31, is_own_data=True)


@pytest.mark.parametrize("kind", RUNS)
def test_training_without_evaluation_keeps_all_checkpoints_by_default(kind, tmp_path):
    """A later command is to evaluate them, as with the reference."""
    script, keep, evaluate = RUNS[kind]
    source = sources.Source(None, None, None, None, text_rules.TextRules(True))
    inputs = fine_tuning.Inputs(None, source, None, None, head_config.NO_LAYER)

    def kept(**given):
        stages = {"do_train": True, evaluate: False} | REQUIRED.get(script, {})
        values = command_lines.parse(script, output_dir=tmp_path, **{**stages, **given})
        settings = options.read(script.Settings, values)
        prepared = fine_tuning.Prepared(None, None, None, 100, 10, settings.evaluates)
        command = squad.Squad(settings, kind)  # stands for the command of any settings
        return fine_tuning.make_run(command, inputs, prepared).run_config.keep_checkpoint_max

    assert kept() == 0
    assert kept(**{keep: 3}) == 3
    assert kept(**{evaluate: True}) == 5
    assert kept(**{"do_train": False, evaluate: True}) == 5


# --- what a trained model's folder says -----------------------------------------------------------

TRAINED = {
    "classifier": (run_classifier, {"task_name": "custom"}, {"max_seq_length": 40}),
    "token classifier": (run_token_classifier, {}, {"max_seq_length": 40}),
    "race": (run_race, {"data_dir": "d"}, {"max_seq_length": 40, "max_qa_length": 9}),
    "squad 1.1": (
        run_squad_v1, {},
        {"max_seq_length": 40, "doc_stride": 8, "max_query_length": 9, "max_answer_length": 3},
    ),
    "squad 2.0": (run_squad_v2, {}, {"max_seq_length": 40, "start_n_top": 2, "n_best_size": 4}),
}  # fmt: skip


def read_alone(script, folder, **given):
    """The settings, and the parsed flags, of a command that does not train."""
    given = {"do_train": False, "output_dir": folder, **given}
    values = command_lines.parse(script, **given)
    return fine_tuning_settings.read(script.Settings, values), values


def describe(folder, settings):
    folder.mkdir(exist_ok=True)
    (folder / "model.json").write_text(json.dumps({"settings": settings}))


@pytest.mark.parametrize("kind", TRAINED)
def test_the_lengths_of_a_trained_model_are_those_of_its_training(kind, tmp_path, caplog):
    script, required, trained = TRAINED[kind]
    folder = tmp_path / "out"
    describe(folder, {**trained, "dropout_prob": 0.3})
    settings, values = read_alone(script, folder, **required)
    assert {name: getattr(settings, name) for name in trained} == trained
    assert not set(trained) & settings.given
    recorded = command_flags.describe(values, script.__name__.removeprefix("albert."))
    assert recorded["max_seq_length"] == {"value": 40, "source": command_flags.PROGRAM}
    # A given flag takes precedence; another checkpoint may be of another training.
    with caplog.at_level("INFO", "absl"):
        settings, _ = read_alone(script, folder, max_seq_length=32, **required)
    assert settings.max_seq_length == 32
    assert f"--max_seq_length=32: the model in {folder} was trained with 40" in caplog.text
    describe(tmp_path / "other", {"max_seq_length": 24})
    checkpoint = tmp_path / "other" / "model.ckpt-9"
    (tmp_path / "other" / "model.ckpt-9.index").touch()
    settings, _ = read_alone(script, folder, checkpoint=checkpoint, **required)
    assert settings.max_seq_length == 24
    settings, _ = read_alone(script, tmp_path / "new", init_checkpoint=checkpoint, **required)
    assert settings.max_seq_length == 24 and settings.described_folder == str(tmp_path / "other")
    (tmp_path / "bare.index").touch()
    settings, _ = read_alone(script, folder, checkpoint=tmp_path / "bare", **required)
    assert settings.described_folder == str(folder)
    default, _ = read_alone(script, tmp_path / "none", **required)
    trains, _ = read_alone(script, folder, do_train=True, **required)
    assert trains.max_seq_length == default.max_seq_length in (384, 512)
    describe(folder, {"max_seq_length": "40"})
    with pytest.raises(file_io.InputError, match="the setting max_seq_length .* is '40'"):
        read_alone(script, folder, **required)


def test_training_uses_no_checkpoint_of_another_folder(tmp_path):
    flags = {"task_name": "MRPC", "data_dir": "d", "output_dir": tmp_path / "out"}
    flags |= {"do_train": True, "do_predict": True}
    for own in ("last", tmp_path / "out", tmp_path / "out" / "model.ckpt-9"):
        command_lines.read(run_classifier, **flags, checkpoint=own).check()
    with pytest.raises(file_io.InputError, match="--checkpoint=.*/b/model.ckpt-9 is not in --out"):
        command_lines.read(run_classifier, **flags, checkpoint=tmp_path / "b/model.ckpt-9").check()


def test_a_model_of_two_texts_reads_two(tmp_path):
    columns = {"text": "question", "text_pair": "answer", "label": "right", "guid": "key"}
    describe(tmp_path, {"columns": columns})
    settings, _ = read_alone(run_classifier, tmp_path, task_name="custom", label_column="gold")
    found = [settings.text_column, settings.text_pair_column, settings.label_column]
    assert found == ["question", "answer", "gold"] and settings.id_column is None
    settings, _ = read_alone(run_classifier, tmp_path, task_name="RTE", data_dir="data")
    assert settings.text_pair_column is None

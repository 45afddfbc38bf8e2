"""The data and settings that scores were measured on, of present and of earlier records."""

import json

import pytest

from albert.io import file_io
from albert.model import decision as decisions
from albert.training import evaluation_basis, run_record, run_session
from albert.training.evaluation_basis import METRIC, READING, Basis

FLAGS = {
    "seed": 1, "eval_fraction": 1.0, "max_seq_length": 128, "learning_rate": 0.5,
    "label_column": "label", "masked_lm_budget": 0.2,
}  # fmt: skip
DESCRIPTION = {"labels": ["no", "yes"], "columns": {"text": "text", "label": "label", "guid": None}}
CUTS = {"decision": {"thresholds": [0.2, 0.5]}}
DATA = {"path": "dev.csv", "sha256": "a" * 64}


def basis(task="custom", metric="f1", data=DATA, description=DESCRIPTION, **flags):
    values = {name: {"value": value} for name, value in {**FLAGS, **flags}.items()}
    return evaluation_basis.from_values(values, task, metric, data, description)


@pytest.mark.parametrize(
    ("change", "parts", "difference"),
    [
        ({}, (READING, METRIC), None),
        ({"learning_rate": 1.0, "seed": 2}, (READING, METRIC), None),
        ({"masked_lm_budget": 0.3}, (READING,), None),  # draws masks of training only
        ({"data": {**DATA, "path": "moved.csv"}}, (), None),
        (
            {"data": {**DATA, "sha256": "b" * 64}},
            (),
            "data dev.csv (SHA-256 aaaaaaaaaaaaaaaa…) and",
        ),
        ({"data": {**DATA, "sha256": None}}, (), None),  # unknown
        ({"data": None}, (), None),
        ({"description": None}, (), None),
        ({"eval_fraction": 0.1}, (), "eval_fraction 1.0 and 0.1"),
        ({"task": "mnli"}, (), 'task "custom" and "mnli"'),
        ({"description": {**DESCRIPTION, "labels": ["yes", "no"]}}, (), None),
        ({"description": {**DESCRIPTION, "labels": []}}, (), 'labels ["no", "yes"] and []'),
        (
            {"description": {**DESCRIPTION, "columns": {"label": "b"}}},
            (),
            'label column "label" an',
        ),
        ({"max_seq_length": 64}, (), None),  # a part of what is compared
        ({"max_seq_length": 64}, (READING,), "max_seq_length 128 and 64"),
        (
            {"description": {**DESCRIPTION, **CUTS}},
            (READING,),
            "thresholds at temperature 1 [] and [0.2, 0.5]",
        ),
        ({"description": {**DESCRIPTION, "decision": {"temperature": 2.0}}}, (READING,), None),
        ({"description": {**DESCRIPTION, "decision": 1}}, (READING,), None),  # damaged
        ({"metric": "loss"}, (), None),
        ({"metric": "loss"}, (METRIC,), 'metric "f1" and "loss"'),
    ],
)
def test_bases_differ_in_what_scores_depend_on(change, parts, difference):
    found = basis().differences(basis(**change), *parts)
    assert [text[: len(difference or "")] for text in found] == ([difference] if difference else [])


def test_a_drawn_fraction_depends_on_the_seed_of_a_run_alone():
    one, other = (basis(eval_fraction=0.5, seed=seed) for seed in (1, 2))
    assert one.differences(other, READING) == ["seed 1 and 2"]
    assert not one.differences(other, METRIC)  # runs over seeds are compared


def test_the_number_of_examples_counts_and_not_that_of_steps():
    one = basis(max_eval_steps=4, eval_batch_size=8)
    assert not one.differences(basis(max_eval_steps=2, eval_batch_size=16))
    assert one.differences(basis(max_eval_steps=2, eval_batch_size=8)) == [
        "max_eval_examples 32 and 16"
    ]


def test_a_new_temperature_keeps_the_basis_and_what_is_unknown_is_not_compared():
    one = decisions.Decision(thresholds=(0.2, 0.5))
    found = [basis(description={**DESCRIPTION, **decision.settings})
             for decision in (one, one.with_temperature(1.7))]  # fmt: skip
    assert found[0] == found[1]
    assert "thresholds at temperature 1" not in basis(description=None).reading
    assert not found[0].differences(basis(description=None), READING)


def test_a_basis_survives_json():
    assert Basis(**json.loads(json.dumps(basis().to_dict()))) == basis()


def test_runs_that_differ_are_named():
    bases = [basis(), basis(), basis(eval_fraction=0.1)]
    with pytest.raises(file_io.InputError, match="a and c .*: eval_fraction 1.0 and 0.1"):
        evaluation_basis.check_same(["a", "b", "c"], bases)


def test_a_record_of_version_1_0_has_its_basis_in_flags_inputs_and_model_json(tmp_path):
    folder, dev = str(tmp_path), tmp_path / "dev.csv"
    dev.write_text("text,label\n")
    (tmp_path / "model.json").write_text(json.dumps({"settings": DESCRIPTION}))
    flags = {name: {"value": value, "source": "default"} for name, value in FLAGS.items()}
    recorder = run_session.Recorder(
        "run_classifier", [], flags, {"eval_data": (str(dev), [str(dev)])}
    )
    with recorder.session(folder, ["train", "eval"], {}):
        run_record.set_model(folder, "custom", "f1", 1, 1)
        run_record.set_result(folder, 10, {"f1": 0.5})
    data = {"path": str(dev), "sha256": file_io.sha256(str(dev))}
    expected = basis(data=data)
    assert run_record.basis_of_result(folder, run_record.read(folder)) == expected
    # The next session has other values in their place, and the result still has its own.
    changed = {**flags, "max_seq_length": {"value": 64, "source": "default"}}
    with run_session.Recorder("run_classifier", [], changed, {}).session(folder, ["train"], {}):
        (tmp_path / "model.json").unlink()
    assert run_record.basis_of_result(folder, run_record.read(folder)) == expected
    assert run_record.read_differences(folder, basis(data=data, max_seq_length=64)) == [
        "max_seq_length 128 and 64"
    ]

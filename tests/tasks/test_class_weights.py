"""Weights of classes: their values, their files, and runs that train with them."""

import json
import shutil

import numpy as np
import pytest
from sklearn.utils import class_weight

from albert import run_classifier
from albert.io import file_io
from albert.tasks import class_weights
from tests.support import builders

COUNTS = {"ham": 6, "a = b": 1, "spam": 3}


def test_balanced_weights_equal_those_of_scikit_learn():
    found = class_weights.find("balanced", COUNTS, "train.csv")
    examples = np.repeat([*COUNTS], [*COUNTS.values()])
    expected = class_weight.compute_class_weight(
        "balanced", classes=np.array([*COUNTS]), y=examples
    )
    assert [*found.values()] == expected.tolist()
    assert class_weights.count([*COUNTS], examples) == COUNTS
    text = class_weights.describe(found, COUNTS)
    assert text.endswith("examples): ham 0.5556 (6), a = b 3.333 (1), spam 1.111 (3)")
    assert class_weights.described({"class_weights": found}) == found


def test_balanced_weights_of_several_labels(caplog):
    caplog.set_level("INFO", logger="absl")
    texts = [("a", "b"), ("b",), ("b",), ("b",)] + [()] * 496 + [("c",)] * 500
    found = class_weights.of_sets("balanced", ["a", "b", "c"], texts, "train.csv")
    assert found == {"a": 100.0, "b": 100.0, "c": 1.0}  # a: 999 / 1, b: 996 / 4
    assert "a 100 (1), b 100 (4), c 1 (500); balanced ones are at most 100" in caplog.text
    counts = {"a": 2, "b": 6, "c": 8}
    found = class_weights.find_of_sets("balanced", counts, 8, "train.csv")
    assert found == {"a": 3.0, "b": pytest.approx(1 / 3), "c": 0.01}
    with pytest.raises(file_io.InputError, match=r"example in train.csv has the label d, so no"):
        class_weights.find_of_sets("balanced", {"a": 1, "d": 0}, 8, "train.csv")


def test_weights_of_a_file(tmp_path):
    path = tmp_path / "weights.json"
    path.write_text('{"spam": 2, "ham": 0.5, "a = b": 1}')
    found = class_weights.find(str(path), COUNTS, "train.csv")
    assert list(found.items()) == [("ham", 0.5), ("a = b", 1.0), ("spam", 2.0)]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"ham": 1, "spam": 1}', "weights.json: no weight for the label a = b; expected an"),
        ('{"ham": 1, "spam": 1, "a = b": 1, "egg": 1}', "weights for unknown labels: egg"),
        ('{"ham": 0, "spam": 1, "a = b": 1}', "the weight of 'ham' is 0, expected a number above"),
        ('{"ham": true, "spam": 1, "a = b": 1}', "the weight of 'ham' is True"),
        ('{"ham": NaN, "spam": 1, "a = b": 1}', "weights.json"),
        ('{"ham": 1e39, "spam": 1, "a = b": 1}', r"is 1e\+39, .* from 1.2e-38 to 3.4e\+38"),
        ('{"ham": 1e-39, "spam": 1, "a = b": 1}', "the weight of 'ham' is 1e-39, expected"),
        ("[1, 2]", "weights.json"),
    ],
)
def test_mistakes_in_a_file_are_named(tmp_path, content, message):
    path = tmp_path / "weights.json"
    path.write_text(content)
    with pytest.raises(file_io.InputError, match=message):
        class_weights.find(str(path), COUNTS, "train.csv")


@pytest.mark.parametrize("source", ["balanced", "weights.json"])
def test_a_class_without_examples_is_named(source):
    with pytest.raises(file_io.InputError, match=r"example in train.csv has the label spam, so no"):
        class_weights.find(source, {"ham": 3, "spam": 0}, "train.csv")


def test_rare_classes_are_reported():
    advice = class_weights.advise(COUNTS)
    assert "6 training examples are 'ham', only 1 'a = b'" in advice and "macro_f1" in advice
    assert not class_weights.advise({"ham": 6, "spam": 2})


def own_flags(folder, output_dir, **changes):
    flags = builders.glue_flags(
        folder, output_dir, "custom", train_file=folder / "train.csv",
        validation_file=folder / "train.csv", from_scratch=True, do_train=True, do_eval=True,
        class_weights="balanced", train_step=6, save_checkpoints_steps=3, train_batch_size=8,
        **changes,
    )  # fmt: skip
    del flags["data_dir"]
    return flags


def test_a_run_of_several_labels_needs_the_weights_of_its_folder(tmp_path, run_script, caplog):
    caplog.set_level("INFO", logger="absl")
    folder, train = builders.write_multi_label(tmp_path / "run"), tmp_path / "train.jsonl"
    labels = [builders.LABELS[:2], builders.LABELS[1:], [], []]
    rows = [{"text": f"soup {i}", "label": [*names]} for i, names in enumerate(labels)]
    train.write_text("\n".join(map(json.dumps, rows)))
    with pytest.raises(file_io.InputError, match="of a run with no class weights, but this run"):
        run_script(
            run_classifier, task_name="custom", label_type="multi_label", train_file=train,
            output_dir=folder, init_checkpoint=folder, do_train=True, class_weights="balanced",
            train_step=1, train_batch_size=4, warmup_step=0, max_seq_length=32,
        )  # fmt: skip
    names = builders.LABELS
    assert f"{names[0]} 3 (1), {names[1]} 1 (2), {names[2]} 3 (1); balanced" in caplog.text


@pytest.mark.slow
def test_a_run_is_resumed_with_its_weights_alone(tmp_path, run_script, caplog):
    caplog.set_level("INFO", logger="absl")
    builders.write_glue(tmp_path)
    rows = [f"good soup {i},yes" for i in range(20)] + [f"bad soup {i},no" for i in range(4)]
    (tmp_path / "train.csv").write_text("\n".join(["text,label", *rows]) + "\n")
    out, again = tmp_path / "out", tmp_path / "again"
    run_script(run_classifier, **own_flags(tmp_path, out, gradient_accumulation_steps=2))
    assert "only 4 'no': accuracy hides rare labels" in caplog.text
    assert "Class weights (training examples): no 3 (4), yes 0.6 (20)" in caplog.text
    weights = {"no": 3.0, "yes": 0.6}
    assert json.loads((out / "model.json").read_text())["settings"]["class_weights"] == weights
    assert json.loads((out / "run.json").read_text())["class_weights"] == weights
    # The second half of the steps makes the same update after a stop.
    shutil.copytree(out, again)
    for file in [*again.glob("*ckpt-6*"), *again.glob("*best*"), again / "eval_results.txt"]:
        file.unlink()
    (again / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-3"\n')
    run_script(run_classifier, **own_flags(tmp_path, again, gradient_accumulation_steps=2))
    same = (builders.weights(str(folder / "model.ckpt-6")) for folder in (out, again))
    builders.assert_same(*same)
    with pytest.raises(file_io.InputError, match="of a run with the class weights .* or another"):
        plain = own_flags(tmp_path, again)
        del plain["class_weights"]
        run_script(run_classifier, **plain)
    with pytest.raises(file_io.InputError, match="--class_weights needs --do_train"):
        run_script(run_classifier, **{**own_flags(tmp_path, again), "do_train": False})

"""Several labels per text: how files name them, and mistakes in such files."""

import json

import pytest

from albert.io import file_io, tables
from albert.tasks import custom, glue, label_sets, model_labels
from tests.support import builders

LIST = label_sets.LabelFormat()
BITS = label_sets.LabelFormat(columns=("fine", "cheap"))
CONTENTS = {
    "csv": (LIST, 'text,label\nA,"fine,cheap"\nB,\nC,cheap\n'),
    "tsv": (label_sets.LabelFormat("|"), "text\tlabel\nA\tfine | cheap\nB\t\nC\tcheap\n"),
    "jsonl": (LIST, '{"text": "A", "label": ["fine", "cheap"]}\n'
              '{"text": "B", "label": []}\n{"text": "C", "label": ["cheap"]}\n'),
    "bits": (BITS, "text,fine,cheap\nA,1,1.0\nB,0,false\nC,0.0,True\n"),
}  # fmt: skip


def task_of(folder, content, form=LIST, ending="csv", is_given=False, dev=None, head=None):
    (folder / f"train.{ending}").write_text(content)
    files = {"train": str(folder / f"train.{ending}"), "dev": None}
    if dev is not None:
        (folder / f"dev.{ending}").write_text(dev)
        files["dev"] = str(folder / f"dev.{ending}")
    out = str(folder / "out")
    return label_sets.find_task(files, tables.Columns(), out, form, is_given, head)


@pytest.mark.parametrize("name", CONTENTS)
def test_all_forms_give_the_same_labels(tmp_path, name, caplog):
    form, content = CONTENTS[name]
    with caplog.at_level("INFO", logger="absl"):
        task = task_of(tmp_path, content, form, "csv" if name == "bits" else name)
    assert "2 labels: " in caplog.text and "cheap (2)" in caplog.text
    assert "1 of 3 texts have none, and a text has at most 2" in caplog.text
    assert task.labels == (("fine", "cheap") if name == "bits" else ("cheap", "fine"))
    examples = list(task.iter_examples("", "train"))
    assert [{*example.label} for example in examples] == [{"fine", "cheap"}, set(), {"cheap"}]
    bits = [glue._label_id(example, task).tolist() for example in examples]
    one = [0, 1] if name == "bits" else [1, 0]
    assert bits == [[1, 1], [0, 0], one]
    other = task_of(tmp_path, content, form, "csv" if name == "bits" else name)
    assert task.fingerprint("", "train") == other.fingerprint("", "train")


def test_spellings_of_whole_numbers_are_one_label(tmp_path):
    rows = [[1, 2], ["1.0"], ["2"], [2.0, 10]]
    content = "".join(json.dumps({"text": "a", "label": row}) + "\n" for row in rows)
    task = task_of(tmp_path, content, ending="jsonl")
    assert task.labels == ("1", "2", "10")
    assert [e.label for e in task.iter_examples("", "train")] == [
        ("1", "2"), ("1",), ("2",), ("2", "10")
    ]  # fmt: skip


def test_the_order_of_labels_is_that_of_the_initial_model(tmp_path):
    form, content = CONTENTS["csv"]
    head = model_labels.ModelHead("config.json", label_sets.KIND, ("Fine", "cheap"))
    assert task_of(tmp_path, content, form, head=head).labels == ("fine", "cheap")
    classes = model_labels.ModelHead("config.json", glue.KIND, ("fine", "cheap"))
    assert task_of(tmp_path, content, form, head=classes).labels == ("cheap", "fine")
    others = model_labels.ModelHead("config.json", label_sets.KIND, ("fine", "dear"))
    with pytest.raises(file_io.InputError, match="has labels cheap, which the model to start"):
        task_of(tmp_path, content, form, head=others)
    joined = model_labels.ModelHead("config.json", label_sets.KIND, ("fine", "cheap", "a, b"))
    for files in ({}, {"train": str(tmp_path / "train.csv")}):
        with pytest.raises(file_io.InputError, match="^config.json: the label 'a, b' has ',' in"):
            label_sets.find_labels(str(tmp_path / "out"), files, "label", LIST, head=joined)


def test_test_data_may_lack_labels(tmp_path):
    task = task_of(tmp_path, CONTENTS["bits"][1], BITS)
    contents = {"text\nA\n": False, "text,fine,cheap\nA,,\n": False, CONTENTS["bits"][1][:24]: True}
    for content, labeled in contents.items():
        (tmp_path / "test.csv").write_text(content)
        task.files["test"] = str(tmp_path / "test.csv")
        assert task.is_labeled("test") == labeled
        (example,) = task.iter_examples("", "test")
        assert example.label == (("fine", "cheap") if labeled else ())


@pytest.mark.parametrize(
    ("content", "form", "message"),
    [
        ("text,label\na,x\nb,y\n", LIST, "label_separator ',' occurs in no row.*first are x, y"),
        ("text,label\na,x|y\nb,y\n", LIST, r"occurs in no row.*first are x\|y, y: give another"),
        ('text,label\na,"x,y"\nb,"y,x"\n', LIST, r"all 2 rows have the same labels \(x, y\)"),
        ("text,label\na,\nb,\n", LIST, r"all 2 rows have the same labels \(none\): nothing can"),
        ("text,label\na,x\nb,\n", LIST, "need two labels or more, found x; for a text that"),
        ('text,label\na,"x,,y"\nb,\n', LIST, r"csv line 2: column 'label' must be a list"),
        ("text,label\na,\"['x', 'y']\"\n", LIST, r"column 'label' looks like a list, .*'x', 'y'"),
        ("text,label\na,[]\nb,x\n", LIST, r"looks like a list, '\[\]'; write the names"),
        ("text,mood\na,x\n", LIST, r"line 2: there is no column 'label' \(label_column\)"),
        ("text,label\n", LIST, r"train\.csv: there is no row"),
        ("text,fine,cheap\na,1,2\n", BITS, r"csv line 2: column 'cheap' .* must be 1 or 0, found"),
        ("text,fine,cheap\na,1,0\nb,,\n", BITS, r"csv line 3: column 'fine' .* must be 1 or 0"),
        ("text,fine\na,1\n", BITS, r"line 2: there is no column 'cheap' \(label_columns\)"),
        ("text,fine,cheap\na,1,0\nb,0,0\n", BITS, "no row has the labels cheap .label_columns.: "),
    ],
)  # fmt: skip
def test_mistakes_in_train_files_are_named(tmp_path, content, form, message):
    with pytest.raises(file_io.InputError, match=message):
        task_of(tmp_path, content, form)


def test_mistakes_in_lists_and_names_are_named(tmp_path):
    for value in ('"a"', "null", "[[]]", '[""]', '["a\\tb"]'):
        rows = f'{{"text": "a", "label": ["b", "c"]}}\n{{"text": "b", "label": {value}}}\n'
        if value == '"a"':  # one name
            assert task_of(tmp_path, rows, ending="jsonl").labels == ("a", "b", "c")
            continue
        with pytest.raises(file_io.InputError, match=r"train\.jsonl line 2: column 'label' must"):
            task_of(tmp_path, rows, ending="jsonl")
    rows = '{"text": "a", "label": ["b, c", "d"]}\n'
    with pytest.raises(file_io.InputError, match="line 1: the label 'b, c' has ',' in it"):
        task_of(tmp_path, rows, ending="jsonl")
    # A separator that is given must occur, even where texts without labels are.
    with pytest.raises(file_io.InputError, match="label_separator ';' occurs in no row"):
        task_of(tmp_path, "text,label\na,x\nb,\nc,y\n", label_sets.LabelFormat(";"), is_given=True)
    assert task_of(tmp_path, "text,label\na,x\nb,\nc,y\n").labels == ("x", "y")


def test_a_label_that_training_lacks_is_named(tmp_path):
    task = task_of(tmp_path, CONTENTS["csv"][1], dev='text,label\na,\nb,"fine,dear"\n')
    message = r"dev\.csv line 3: label 'dear', expected labels of the training: cheap, fine"
    with pytest.raises(file_io.InputError, match=message):
        list(task.iter_examples("", "dev"))


def test_formats_that_cannot_be_are_refused(tmp_path):
    for separator in ("", "\t", "\n"):
        with pytest.raises(file_io.InputError, match="label_separator must be a text without tabs"):
            label_sets.LabelFormat(separator)
    with pytest.raises(file_io.InputError, match="must be different names, found a, a"):
        label_sets.LabelFormat(columns=("a", "a"))
    with pytest.raises(file_io.InputError, match=r"found 1, 1\.0 \(1 and 1\.0 are one label\)"):
        label_sets.LabelFormat(columns=("1", "1.0"))
    form = label_sets.LabelFormat(columns=("fine", "text"))
    with pytest.raises(file_io.InputError, match="label_columns and id_column must be different"):
        task_of(tmp_path, CONTENTS["bits"][1], form)


def test_saved_labels_are_used_afterwards(tmp_path):
    (tmp_path / "out").mkdir()
    custom.save_labels(str(tmp_path / "out"), ["fine", "cheap", "sweet"])
    assert task_of(tmp_path, CONTENTS["csv"][1]).labels == ("fine", "cheap", "sweet")
    with pytest.raises(file_io.InputError, match=r"there is no .*labels\.json with the names of"):
        label_sets.find_labels(str(tmp_path), {}, "label", LIST)


def test_a_folder_of_the_other_type_is_named(tmp_path):
    folder = builders.write_multi_label(tmp_path / "sets")
    files = {"train": str(tmp_path / "train.csv")}
    (tmp_path / "train.csv").write_text("text,label\na,x\nb,y\n")
    assert label_sets.find_labels(folder, files, "label", LIST) == builders.LABELS
    message = r"label_type=classification, but .*labels.json is that .*=multi_label: give"
    for kind in (None, "classification"):
        with pytest.raises(file_io.InputError, match=message):
            custom.find_task(files, tables.Columns(), folder, kind)
    with pytest.raises(file_io.InputError, match=r"=regression, but .*=multi_label: give"):
        custom.find_task(files, tables.Columns(), folder, "regression")
    folder = builders.write_classifier(tmp_path / "classes")
    with pytest.raises(file_io.InputError, match=r"=multi_label, but .*=classification: give that"):
        label_sets.find_task(files, tables.Columns(), folder, LIST)


def test_a_log_names_labels_that_all_texts_have(tmp_path, caplog):
    with caplog.at_level("WARNING", logger="absl"):
        task_of(tmp_path, 'text,label\na,"x,y"\nb,x\n')
    assert "All texts of" in caplog.text and "have the labels x: these cannot" in caplog.text

"""Free questions with options, answered by a model of RACE."""

import json

import numpy as np
import pytest

from albert import predict
from albert.io import file_io
from albert.model import checkpoints, heads, model_folder, sources
from albert.serving import choice_predictor
from albert.tasks import race
from albert.text import text_rules, tokenization
from tests.support import builders

CONFIG = builders.tiny_config(initializer_range=0.5)
LENGTHS = (40, 16)


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory):
    folder = str(tmp_path_factory.mktemp("race"))
    source = sources.Source("", None, str(builders.SPM), None, text_rules.TextRules(True))
    settings = {"max_seq_length": LENGTHS[0], "max_qa_length": LENGTHS[1]}
    model_folder.write(folder, race.KIND, CONFIG, source, settings)
    checkpoints.save(f"{folder}/model.ckpt-7", heads.MultipleChoiceModel(CONFIG, 4, seed=4))
    return folder


def rows_of(count):
    for passage in builders.passages("middle", "test", count):
        for question, options in zip(passage["questions"], passage["options"], strict=True):
            article = passage["article"] * (1 + len(options[0]))
            yield {"article": article, "question": question, "options": options}


def expected(model_dir, row):
    """By the model and the features of the training script."""
    tokenizer = tokenization.FullTokenizer(spm_model_file=str(builders.SPM))
    endings = tuple(race.ending(row["question"], option) for option in row["options"])
    example = race.RaceExample("", "", row["article"], endings, 0, "high")
    features = race.convert_example(example, *LENGTHS, tokenizer)
    model = heads.MultipleChoiceModel(CONFIG, len(endings))
    checkpoints.restore(model, model_dir)
    inputs = ("input_ids", "input_mask", "segment_ids")
    return model({name: features[name][np.newaxis] for name in inputs})["probabilities"][0].numpy()


def test_choices_are_those_of_the_model(model_dir, tmp_path, run_script, capsys):
    rows = list(rows_of(2))
    rows[1]["options"] = rows[1]["options"][:3]  # as many as there are
    rows[2]["id"] = "third"
    path = tmp_path / "in.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    run_script(
        predict, model_dir=model_dir, input_file=path, output_file=tmp_path / "out.jsonl",
        batch_size=3,
    )  # fmt: skip
    found = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [row["id"] for row in found] == ["0", "1", "third", "3"]
    for row, answer in zip(rows, found, strict=True):
        probabilities = expected(model_dir, row)
        assert list(answer["probabilities"]) == list("ABCD"[: len(row["options"])])
        np.testing.assert_allclose(list(answer["probabilities"].values()), probabilities, atol=2e-6)
        best = int(np.argmax(probabilities))
        assert (answer["prediction"], answer["answer"]) == ("ABCD"[best], row["options"][best])
    run_script(predict, model_dir=model_dir, input_file=path)
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == found


def test_a_blank_may_be_several_underscores(model_dir):
    predictor = choice_predictor.ChoicePredictor(model_dir)
    rows = [{**next(rows_of(1)), "question": f"We {blank} there."} for blank in ("_", "____")]
    # Alone: the last digit of a row may depend on its place in a batch.
    one, four = ([*predictor.predict([predictor.read_request(row)])][0] for row in rows)
    assert one.probabilities == four.probabilities


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"options": ["one"]}, r"in\.jsonl line 2: options must be a list of 2 to 26 texts, found"),
        ({"options": ["a", 3]}, r"line 2: options must be a list of 2 to 26 texts"),
        ({"article": " "}, "line 2: column 'article' holds no text"),
        ({"question": None}, r"line 2: column 'question' holds no text"),
        ({"question": 3}, r"line 2: column 'question' must be a text"),
    ],
)
def test_bad_lines_are_named(tmp_path, change, message):
    row = next(rows_of(1))
    lines = [json.dumps({**row, **other}).encode() for other in ({}, change)]
    with pytest.raises(file_io.InputError, match=message):
        list(choice_predictor.read_questions(lines, "in.jsonl"))
    with pytest.raises(file_io.InputError, match="line 1: expected the keys .* no options among a"):
        list(choice_predictor.read_questions([b'{"article": "a", "question": "b"}'], "f"))


def test_forms_and_columns_of_other_models_are_refused(model_dir, tmp_path, run_script):
    flags = {"model_dir": model_dir, "input_file": tmp_path / "in.jsonl"}
    with pytest.raises(file_io.InputError, match="--output_format=tsv: "):
        run_script(predict, **flags, output_format="tsv")
    with pytest.raises(file_io.InputError, match="--text_column: only for models of"):
        run_script(predict, **flags, text_column="x")

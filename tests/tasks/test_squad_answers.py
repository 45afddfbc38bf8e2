"""SQuAD files in, answers out: the reader's messages, recorded predictions, hand-made scores."""

import gzip
import json
import random

import numpy as np
import pytest

from albert.io.file_io import InputError
from albert.tasks.squad import answers as squad_answers
from albert.tasks.squad import features as squad_features
from albert.tasks.squad import metrics as squad_metrics
from albert.text import tokenization


def question(key="q1", answers=(("cat", 4),), **extra):
    answers = [{"text": text, "answer_start": start} for text, start in answers]
    return {"id": key, "question": "Who?", "answers": answers, **extra}


def write(tmp_path, *questions, context="The cat sat on the cat."):
    content = {"version": "v2.0", "data": [{"title": "t", "paragraphs": []}]}
    content["data"][0]["paragraphs"].append({"context": context, "qas": list(questions)})
    path = tmp_path / "squad.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    return str(path)


# --- reading -----------------------------------------------------------------------------------


def test_read_for_training(tmp_path):
    path = write(
        tmp_path,
        question("a", [("cat", 19)]),
        question("b", [], is_impossible=True, plausible_answers=[{"text": "x"}]),
        question("c", [("The", 0)], is_impossible=True),
    )
    context = "The cat sat on the cat."
    assert squad_answers.read_squad_examples(path, is_training=True) == [
        squad_features.SquadExample("a", "Who?", context, "cat", 19, False, ("cat",), (19,)),
        squad_features.SquadExample("b", "Who?", context, "", -1, True, (), ()),
        squad_features.SquadExample("c", "Who?", context, "", -1, True, (), ()),
    ]


def test_read_for_prediction(tmp_path):
    without = question("c")
    del without["answers"]
    path = write(
        tmp_path,
        question("a", [("cat", 0), ("sat", 99)]),  # places do not matter here
        question("b", [], is_impossible=True),
        without,
    )
    examples = squad_answers.read_squad_examples(path, is_training=False)
    assert [example.answers for example in examples] == [("cat", "sat"), (), None]
    assert [example.is_impossible for example in examples] == [False, True, False]
    assert {(example.orig_answer_text, example.start_position) for example in examples} == {
        (None, None)
    }


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        (
            [("cat", 4), ("cat", 19)],
            "'q7' has 2 different answers; for training each .* exactly one",
        ),
        ([], "'q7' has 0 different answers"),
        (
            [("cat", 5)],
            "answer of question 'q7' is 'cat', but at character 5 .* has 'at '; it is at character "
            r"4, 19 \(counted from 0",
        ),
        ([("dog", 4)], "'dog', but at character 4 the context has 'cat'; it is nowhere in the con"),
        ([("cat", True)], r"expected 'answer_start' \(number\) in .*found true or false"),
        ([("cat", 22)], r"at character 22 the context has '\.'"),
        ([("t.", -2)], "at character -2 the context has ''"),
        ([("", 4)], "is '', but at character 4"),
        ([("cat", "4")], r"expected 'answer_start' \(number\) in question 'q7' .*found text"),
        ([(None, 4)], r"expected 'text' \(text\) in question 'q7' .*found null"),
    ],
)
def test_training_questions_need_one_answer_in_its_place(tmp_path, answers, message):
    path = write(tmp_path, question("q1"), question("q7", answers))
    with pytest.raises(InputError, match=message) as caught:
        squad_answers.read_squad_examples(path, is_training=True)
    assert "squad.json" in str(caught.value)


def test_training_allows_questions_without_answers_that_are_omitted_later(tmp_path):
    silent = {"id": "c", "question": "Who?"}  # the selection names it
    path = write(tmp_path, question("a", [("cat", 4)]), question("b", []), silent)
    with pytest.raises(InputError, match="'b' has 0 different answers"):
        squad_answers.read_squad_examples(path, is_training=True)
    examples = squad_answers.read_squad_examples(path, is_training=True, answerable_only=True)
    assert [example.answers for example in examples] == [("cat",), (), None]
    with pytest.raises(InputError, match="'c' has 2 different answers"):
        path = write(tmp_path, question("c", [("cat", 4), ("sat", 8)]))
        squad_answers.read_squad_examples(path, is_training=True, answerable_only=True)


def test_malformed_json_is_placed(tmp_path):
    path = tmp_path / "squad.json"
    path.write_text('{"data": [\n  {"paragraphs": [}\n]}')
    with pytest.raises(InputError, match=r"squad\.json is not valid JSON.*line 2, column 19"):
        squad_answers.read_squad_examples(str(path), is_training=False)
    with pytest.raises(InputError, match="the file .*missing.json does not exist"):
        squad_answers.read_squad_examples(str(tmp_path / "missing.json"), is_training=False)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[]", r"expected 'data' \(list\) in the file, found none"),
        ('{"data": {}}', r"expected 'data' \(list\) in the file, found object"),
        ('{"data": []}', "holds no questions"),
        ('{"data": [{}]}', r"'paragraphs' \(list\) in data\[0\], found none"),
        (
            '{"data": [{"paragraphs": [{"qas": []}]}]}',
            r"'context' \(text\) in data\[0\].paragraphs\[0\]",
        ),
        (
            '{"data": [{"paragraphs": [{"context": "x", "qas": [{"question": "?"}]}]}]}',
            r"'id' \(text\) in data\[0\].paragraphs\[0\].qas\[0\], found none",
        ),
        (
            '{"data": [{"paragraphs": [{"context": "x", "qas": [{"id": true, "question": ""}]}]}]}',
            r"'id' \(text\) in .*, found true or false",
        ),
        (
            '{"data": [{"paragraphs": [{"context": "\\ud800", "qas": []}]}]}',
            r"'context' in data\[0\].paragraphs\[0\] is not valid text",
        ),
    ],
)
def test_other_structures_are_placed(tmp_path, content, message):
    path = tmp_path / "squad.json"
    path.write_text(content)
    with pytest.raises(InputError, match=message):
        squad_answers.read_squad_examples(str(path), is_training=False)


def test_repeated_ids(tmp_path):
    path = write(tmp_path, question("a"), question("b"), question("a"))
    with pytest.raises(InputError, match=r"have the id 'a', .*\.qas\[0\] and .*\.qas\[2\]"):
        squad_answers.read_squad_examples(path, is_training=False)
    assert len(squad_answers.read_squad_examples(path, is_training=True)) == 3


@pytest.mark.parametrize("value", ["False", "false", 0, None, []])
def test_whether_a_question_is_impossible_is_true_or_false(tmp_path, value):
    path = write(tmp_path, question("q7", is_impossible=value))
    message = r"expected 'is_impossible' \(true or false\) in question 'q7' \(data\[0\].*\), found "
    for is_training in (True, False):
        with pytest.raises(InputError, match=message):
            squad_answers.read_squad_examples(path, is_training)


def test_whole_numbers_are_ids_and_equal_answers_are_one(tmp_path):
    path = write(tmp_path, question(7, [("cat", 4)] * 3), question("8"))
    examples = squad_answers.read_squad_examples(path, is_training=True)
    assert [example.qas_id for example in examples] == ["7", "8"]
    assert (examples[0].orig_answer_text, examples[0].start_position) == ("cat", 4)


def test_contradictions_are_counted_and_named(tmp_path, caplog):
    path = write(
        tmp_path,
        question("a", [("cat", 4)], is_impossible=True),
        question("b", [("sat", 8)], is_impossible=True),
        question("c", [], is_impossible=False),
        question("d", [("cat", 5), ("cat", 4)]),
    )
    with caplog.at_level("WARNING", logger="absl"):
        examples = squad_answers.read_squad_examples(path, is_training=False)
    assert [example.answers for example in examples] == [(), (), (), ("cat", "cat")]
    assert examples[3].answer_starts == (None, 4)
    for message in (
        "2 questions are is_impossible and have answers: they count as unanswerable; such as a, b",
        "1 questions have no answers and are not is_impossible: they count as unanswerable; such",
        "1 questions have an answer that is not at its answer_start: only its text counts; such as",
    ):
        assert message in caplog.text


def test_training_shuffle_is_that_of_the_reference():
    examples = list(range(100))
    expected = list(examples)
    random.Random(12345).shuffle(expected)
    assert squad_answers.shuffle_examples(iter(examples)) == expected
    assert examples == list(range(100))


# --- recorded answers ---------------------------------------------------------------------------

V2_KEYS = {
    "start_top_log_probs": "stl",
    "start_top_index": "sti",
    "end_top_log_probs": "etl",
    "end_top_index": "eti",
    "cls_logits": "cls",
}


def _load(path):
    with gzip.open(path, "rt") as file:
        return json.load(file)


@pytest.fixture(scope="module", params=["v2_dev", "v2_dev_short"])
def recorded(request, shared):
    """(examples, features, scores, recorded answers, file content cut to these questions)."""
    folder = shared / "golden" / "data"
    settings = _load(folder / f"squad_features_{request.param}.json.gz")
    path = shared / "data" / "squad" / settings["file"]
    by_id = {item.qas_id: item for item in squad_answers.read_squad_examples(str(path), False)}
    examples = [by_id[key] for key in settings["qas_ids"]]
    model = shared / "data" / "spm" / "30k-clean.model"
    features = squad_features.convert_examples_to_features(
        examples,
        tokenization.FullTokenizer(spm_model_file=str(model)),
        settings["max_seq_length"],
        settings["doc_stride"],
        settings["max_query_length"],
        is_training=False,
        do_lower_case=True,
    )
    content = json.loads(path.read_text(encoding="utf-8"))
    for article in content["data"]:
        for paragraph in article["paragraphs"]:
            paragraph["qas"] = [q for q in paragraph["qas"] if q["id"] in settings["qas_ids"]]
    scores = np.load(folder / f"squad_scores_{request.param}.npz")
    answers = _load(folder / f"squad_predictions_{request.param}.json.gz")
    return examples, list(features), scores, answers, content


def _check_nbest(ours, theirs):
    assert list(ours) == list(theirs)
    for key, entries in ours.items():
        assert len(entries) == len(theirs[key])
        for ours_entry, entry in zip(entries, theirs[key], strict=True):
            assert list(ours_entry) == list(entry)
            assert abs(ours_entry.pop("probability") - entry.pop("probability")) <= 1e-6
            assert ours_entry == entry


def _check_scores(ours, theirs):
    assert {key: ours[key] for key in theirs} == pytest.approx(theirs, abs=1e-9)


def test_recorded_answers_v1(recorded):
    examples, features, scores, answers, content = recorded
    results = {
        window.unique_id: {
            "start_log_prob": scores[f"start/{window.unique_id}"],
            "end_log_prob": scores[f"end/{window.unique_id}"],
        }
        for window in features
    }
    predictions, nbest = squad_answers.predictions_v1(examples, features, results, 20, 30)
    assert predictions == answers["v1"]["predictions"]
    _check_nbest(nbest, answers["v1"]["nbest"])
    _check_scores(squad_metrics.evaluate_v1(content, predictions), answers["v1"]["eval"])


def test_recorded_answers_v2(recorded):
    examples, features, scores, answers, content = recorded
    results = {
        window.unique_id: {
            name: scores[f"{key}/{window.unique_id}"] for name, key in V2_KEYS.items()
        }
        for window in features
    }
    predictions, nbest, null_odds = squad_answers.predictions_v2(
        examples, features, results, 20, 30, 5, 5
    )
    assert predictions == answers["v2"]["predictions"]
    assert null_odds == answers["v2"]["null_odds"]
    texts = {key: entries[0]["text"] for key, entries in nbest.items()}
    _check_nbest(nbest, answers["v2"]["nbest"])
    for given in (texts, predictions):
        result = squad_metrics.evaluate_v2(content, given, null_odds)
        _check_scores(result, answers["v2"]["eval"])


# --- answers by hand ----------------------------------------------------------------------------


def example_of(text="The old cat sat.", key="q", **values):
    return squad_features.SquadExample(key, "Who?", text, **values)


def window_of(text="The old cat sat.", key="q", number=0, begin=3, max_context=None):
    """A window with one place per word from `begin` on; each word takes the space before it."""
    ends = [at for at in range(len(text)) if at + 1 == len(text) or text[at + 1] == " "]
    starts = [0, *(end + 1 for end in ends[:-1])]
    return squad_features.SquadFeatures(
        unique_id=number,
        qas_id=key,
        example_index=0,
        doc_span_index=number,
        max_seq_length=12,
        real_ids=[2] * (begin + len(starts) + 1),
        text_begin=begin,
        max_context=max_context or (begin, begin + len(starts)),
        piece_start=np.array(starts),
        piece_end=np.array(ends),
    )


def logits(*best, length=12):
    """Scores that are -9 but at the given (place, score)."""
    values = np.full(length, -9.0, np.float32)
    for place, score in best:
        values[place] = score
    return values


def v1(windows, starts, ends, n_best_size=2, max_answer_length=3, examples=None):
    results = {
        window.unique_id: {"start_log_prob": start, "end_log_prob": end}
        for window, start, end in zip(windows, starts, ends, strict=True)
    }
    return squad_answers.predictions_v1(
        examples or [example_of()], windows, results, n_best_size, max_answer_length
    )


def test_v1_best_spans_and_their_probabilities():
    start, end = logits((4, 2.0), (5, 1.0)), logits((5, 3.0), (6, 2.5))
    predictions, nbest = v1([window_of()], [start], [end], n_best_size=3)
    assert predictions == {"q": "old cat"}
    assert [entry["text"] for entry in nbest["q"]] == ["old cat", "old cat sat.", "cat"]
    weights = np.exp([5.0, 4.5, 4.0])
    assert [entry["probability"] for entry in nbest["q"]] == pytest.approx(
        (weights / weights.sum()).tolist()
    )
    assert nbest["q"][1]["start_log_prob"] == 2.0 and nbest["q"][1]["end_log_prob"] == 2.5


@pytest.mark.parametrize(
    ("starts", "ends", "values"),
    [
        ([(1, 9.0), (2, 8.0)], [(5, 9.0), (6, 8.0)], {}),  # starts in the question
        ([(7, 9.0), (8, 8.0)], [(8, 9.0), (9, 8.0)], {}),  # starts after the text
        ([(5, 9.0), (6, 8.0)], [(7, 9.0), (8, 8.0)], {}),  # ends after the text
        ([(5, 9.0), (6, 8.0)], [(3, 9.0), (4, 8.0)], {}),  # ends before the start
        ([(3, 9.0), (4, 8.0)], [(5, 9.0), (6, 8.0)], {"max_answer_length": 1}),
        ([(3, 9.0), (4, 8.0)], [(5, 9.0), (6, 8.0)], {"max_context": (5, 7)}),
    ],
)
def test_spans_that_cannot_be(starts, ends, values):
    window = window_of(max_context=values.pop("max_context", None))
    predictions, nbest = v1([window], [logits(*starts)], [logits(*ends)], **values)
    assert predictions == {"q": "empty"}
    assert nbest["q"] == [
        {"text": "empty", "probability": 1.0, "start_log_prob": 0.0, "end_log_prob": 0.0}
    ]


def test_longest_answer_and_edges_of_max_context():
    window = window_of(max_context=(4, 6))
    start, end = logits((4, 9.0), (5, 8.0)), logits((6, 9.0), (5, 1.0))
    assert v1([window], [start], [end])[0] == {"q": "old cat sat."}
    assert v1([window], [start], [end], max_answer_length=2)[0] == {"q": "cat sat."}


def test_windows_compete_and_equal_texts_count_once():
    text = "cat cat cat"
    windows = [window_of(text, number=0), window_of(text, number=1)]
    starts = [logits((3, 1.0), (4, 2.0)), logits((5, 3.0), (3, 0.0))]
    ends = [logits((3, 1.0), (4, 2.0)), logits((5, 3.0), (3, 0.0))]
    _, nbest = v1(windows, starts, ends, 2, 1, [example_of(text)])
    assert nbest["q"] == [
        {"text": "cat", "probability": 1.0, "start_log_prob": 3.0, "end_log_prob": 3.0}
    ]


def test_answers_know_their_place():
    text = "The  old cat"
    window = window_of(text)
    results = {0: {"start_log_prob": logits((4, 3.0)), "end_log_prob": logits((5, 3.0))}}
    ((answer,),) = squad_answers.best_answers_v1([example_of(text)], [window], results, 1, 5)
    assert (answer.text, text[answer.start : answer.end]) == ("old", "old")


def test_questions_keep_their_order_however_the_windows_come():
    examples = [example_of(key=key) for key in "abc"]
    windows = [window_of(key=key, number=i) for i, key in enumerate("cacb")]
    starts = [logits((place, 5.0)) for place in (3, 4, 5, 6)]
    predictions, _ = v1(windows, starts, starts, examples=examples)
    assert list(predictions.items()) == [("a", "old"), ("b", "sat."), ("c", "The")]


def test_many_windows_give_the_same_answers_in_groups(monkeypatch):
    rng = np.random.default_rng(1)
    keys = [f"q{i}" for i in range(30)]
    windows = [window_of(key=key, number=4 * i + k) for i, key in enumerate(keys) for k in range(3)]
    starts, ends = rng.standard_normal((2, len(windows), 12)).astype(np.float32)
    examples = [example_of(key=key) for key in keys]
    together = v1(windows, starts, ends, 20, 30, examples)
    monkeypatch.setattr(squad_answers, "WINDOWS_AT_A_TIME", 7)
    assert v1(windows, starts, ends, 20, 30, examples) == together


def test_scores_of_trimmed_windows_may_be_shorter():
    windows = [window_of(number=0), window_of(number=1)]
    starts = [logits((3, 2.0), length=9), logits((4, 1.0))]
    ends = [logits((3, 2.0), length=9), logits((4, 3.0))]
    whole = [np.append(starts[0], [-np.inf] * 3).astype(np.float32), starts[1]]
    whole_ends = [np.append(ends[0], [-np.inf] * 3).astype(np.float32), ends[1]]
    assert v1(windows, starts, ends, 20) == v1(windows, whole, whole_ends, 20)


def test_windows_without_scores_are_an_error():
    windows = [window_of(number=0), window_of(number=1), window_of(number=2)]
    results = {0: {"start_log_prob": logits(), "end_log_prob": logits()}}
    with pytest.raises(InputError, match="2 of 3 windows have no scores; the first is window 1"):
        squad_answers.predictions_v1([example_of()], windows, results, 2, 3)


@pytest.mark.parametrize("key", ["other", None])
def test_windows_of_other_examples_are_an_error(key):
    results = {0: {"start_log_prob": logits(), "end_log_prob": logits()}}
    with pytest.raises(InputError, match=f"question {key!r}, which is not among the examples"):
        squad_answers.predictions_v1([example_of()], [window_of(key=key)], results, 2, 3)


# --- answers by hand, 2.0 -----------------------------------------------------------------------


def beams(start, ends, cls):
    """Results with two starts [(place, score)] and two ends for each."""
    pairs = [pair for pairs in ends for pair in pairs]
    return {
        "start_top_index": np.array([place for place, _ in start]),
        "start_top_log_probs": np.array([score for _, score in start], np.float32),
        "end_top_index": np.array([place for place, _ in pairs]),
        "end_top_log_probs": np.array([score for _, score in pairs], np.float32),
        "cls_logits": np.float32(cls),
    }


BEAMS = beams([(4, -1.0), (3, -2.0)], [[(5, -1.0), (2, 0.0)], [(3, -0.5), (6, -3.0)]], 0.25)


def v2(examples, windows, results, threshold=None):
    return squad_answers.predictions_v2(examples, windows, results, 20, 3, 2, 2, threshold)


def test_v2_ends_belong_to_their_starts():
    _, nbest, null_odds = v2([example_of()], [window_of()], {0: BEAMS})
    # (3, 6) is too long, (4, 2) ends in the question.
    assert [entry["text"] for entry in nbest["q"]] == ["old cat", "The"]
    assert nbest["q"][1]["end_log_prob"] == -0.5
    assert null_odds == {"q": 0.25}


def test_v2_null_odds_are_the_least_of_the_windows():
    results = {0: BEAMS, 1: {**BEAMS, "cls_logits": np.float32(-0.5)}, 2: BEAMS}
    windows = [window_of(number=number) for number in range(3)]
    assert v2([example_of()], windows, results)[2] == {"q": -0.5}


def test_v2_threshold():
    def answer(threshold, **values):
        return v2([example_of(**values)], [window_of()], {0: BEAMS}, threshold)[0]["q"]

    assert answer(0.25) == ""  # at the threshold there is no answer
    assert answer(0.26) == "old cat"
    assert answer(None) == ""  # answers not known: threshold 0
    assert answer(None, answers=()) == ""


def test_v2_threshold_is_searched_on_known_answers():
    gold = {"a": ("old cat",), "b": (), "c": ("The",)}
    examples = [example_of(key=key, answers=answers) for key, answers in gold.items()]
    windows = [window_of(key=key, number=i) for i, key in enumerate(gold)]
    results = {i: {**BEAMS, "cls_logits": np.float32(cls)} for i, cls in enumerate((1, 3, 2))}
    # Answering a gains 1; answering c or b gains nothing. Odds at the threshold give no answer.
    predictions, _, _ = v2(examples, windows, results)
    assert predictions == {"a": "", "b": "", "c": ""}
    assert v2(examples, windows, results, 2.0)[0] == {"a": "old cat", "b": "", "c": ""}
    examples[2].answers = ("cat",)  # now c gains 2/3
    assert v2(examples, windows, results)[0] == {"a": "old cat", "b": "", "c": ""}
    examples[1].answers = None  # not all are known
    assert v2(examples, windows, results)[0] == {"a": "", "b": "", "c": ""}


def test_v2_without_candidates_or_windows():
    nothing = {**BEAMS, "start_top_index": np.array([0, 1])}
    examples = [example_of(key="a"), example_of(key="b")]
    predictions, nbest, null_odds = v2(examples, [window_of(key="a")], {0: nothing}, 2.0)
    assert predictions == {"a": "", "b": ""}
    none = {"text": "", "probability": 1.0, "start_log_prob": -1e6, "end_log_prob": -1e6}
    assert nbest == {"a": [none], "b": [none]}
    assert null_odds == {"a": 0.25, "b": 1000000.0}


def test_v2_other_beam_sizes_are_an_error():
    with pytest.raises(InputError, match=r"2 start_top_log_probs; expected 3 with start_n_top 3"):
        squad_answers.predictions_v2([example_of()], [window_of()], {0: BEAMS}, 20, 3, 3, 2)
    with pytest.raises(InputError, match=r"4 end_top_log_probs; expected 2 with .*end_n_top 1"):
        squad_answers.predictions_v2([example_of()], [window_of()], {0: BEAMS}, 20, 3, 2, 1)


# --- files --------------------------------------------------------------------------------------


@pytest.mark.parametrize("task", ["squad_v1", "squad_v2"])
def test_files_have_the_recorded_form(shared, tmp_path, task):
    folder = shared / "golden" / "runs" / task
    names = ["predictions.json", "nbest_predictions.json", "null_odds.json"][: 1 + int(task[-1])]
    contents = [json.loads((folder / name).read_text(encoding="utf-8")) for name in names]
    squad_answers.write_predictions(str(tmp_path), *contents)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(names)
    for name in names:
        assert (tmp_path / name).read_bytes() == (folder / name).read_bytes()
    # So much for the form; these are the entries.
    entry = contents[1][next(iter(contents[1]))][0]
    assert list(entry) == list(squad_answers.Answer("", 0.0, 0.0, 0.0).to_json())


def test_files_escape_text_as_recorded(tmp_path):
    squad_answers.write_predictions(str(tmp_path), {"q": "é–"}, {"q": []})
    assert (tmp_path / "predictions.json").read_text() == '{\n    "q": "\\u00e9\\u2013"\n}\n'

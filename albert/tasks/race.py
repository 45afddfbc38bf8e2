"""The task RACE (Lai et al. 2017): its passages, features of the choices, scores by level.

Arguments: `data_dir` is the folder that holds ``RACE/<split>/<level>/``.

Letters in shapes: B batch, C choices, S sequence. Only functions that build graphs import
TensorFlow, so that readers start quickly.
"""

import dataclasses
import functools
import hashlib
import itertools
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from absl import logging

from albert.data import tfrecord
from albert.data.input_options import Tensors
from albert.io import file_io, json_shapes
from albert.model import head_config
from albert.model.configuration import AlbertConfig
from albert.tasks import example_data, glue, metrics, outcomes, prediction_files
from albert.text import model_inputs, tokenization
from albert.training import contracts

if TYPE_CHECKING:
    import tensorflow as tf

    from albert.model.layers import Compute

NUM_CHOICES = 4
RESERVED_TOKENS = 4  # other tokens of an input, at least: one of the article, [CLS] and two [SEP]
KIND = "multiple_choice"  # kind of model folders
LEVELS = ("middle", "high")  # in the order of the codes that records hold
_FOLDER = "RACE"
MAX_QA_LENGTH = 128  # tokens of question and option, by default
_MERGED = "all.txt"
_LETTERS = "ABCD"
_SHOWN_OF_ARTICLE = 160  # characters
_BLANK = "_"
_PASSAGE = {
    "article": str, "questions": [str], "options": [[str]], "answers": [str], "id": (str, int)
}  # fmt: skip


@dataclasses.dataclass(frozen=True, slots=True)
class RaceExample:
    """One question about a passage.

    Attributes:
      guid: ``<passage id>#<number of the question, from 1>``.
      example_id: id of the passage, the same for all its questions.
      endings: the C texts of question and option.
      label: index of the right option.
      level: "middle" or "high".
    """

    guid: str
    example_id: str
    article: str
    endings: tuple[str, ...]
    label: int
    level: str

    @property
    def text(self) -> str:
        """The choices and the begin of the article, for people to read."""
        # Each ending repeats the question, whose words before the choices are shown once.
        common = os.path.commonprefix(self.endings)
        common = common[: common.rfind(" ") + 1]
        endings = (text[len(common) :] for text in self.endings)
        choices = (f"{a}: {text}" for a, text in zip(_LETTERS, endings, strict=False))
        article = outcomes.shortened(self.article, _SHOWN_OF_ARTICLE)
        return f"{common}{' | '.join(choices)} — {article}"


# --- reading ----------------------------------------------------------------------------------


def _levels(high_only: bool, middle_only: bool) -> tuple[str, ...]:
    """Returns the levels to read, of `LEVELS`; raises InputError if both switches are true."""
    if high_only and middle_only:
        raise file_io.InputError("high_only and middle_only contradict each other; give one")
    is_omitted = {"middle": high_only, "high": middle_only}
    return tuple(level for level in LEVELS if not is_omitted[level])


def _by_number(name: str) -> tuple[int, str]:
    """Returns a sort key for published file names, which are numbers: 2.txt before 10.txt."""
    number = re.match(r"\d+", name)
    return (int(number.group()) if number else -1, name)


def data_files(data_dir: str, split: str, level: str) -> list[str]:
    """Returns the paths of the passages of a split and level.

    Returns:
      ``[…/all.txt]`` if that file exists, else all .txt files, as published, by number.
    """
    folder = os.path.join(data_dir, _FOLDER, split, level)
    if not file_io.is_dir(folder):
        hint = ""
        if file_io.is_dir(os.path.join(data_dir, split)):
            hint = f" ({split} is in {data_dir} itself: give the folder above {_FOLDER})"
        raise file_io.InputError(
            f"RACE: the folder {folder} does not exist; expected data_dir to hold "
            f"{_FOLDER}/{split}/{level} with {_MERGED} or one .txt file per passage{hint}"
        )
    names = [name for name in file_io.listdir(folder) if name.endswith(".txt")]
    if not names:
        raise file_io.InputError(f"RACE: {folder} holds no .txt file; expected {_MERGED} or others")
    if _MERGED in names:
        names = [_MERGED]
    return [os.path.join(folder, name) for name in sorted(names, key=_by_number)]


def files(
    data_dir: str, split: str, high_only: bool = False, middle_only: bool = False
) -> list[str]:
    """Returns the paths of the passages of a split, of one level if a switch is set."""
    levels = _levels(high_only, middle_only)
    return [path for level in levels for path in data_files(data_dir, split, level)]


def fingerprint(
    data_dir: str, split: str, high_only: bool = False, middle_only: bool = False
) -> dict[str, Any]:
    """Returns {"data_sha256": text, "levels": list}, JSON-ready, which identify a split's data."""
    digest = hashlib.sha256()
    for level in _levels(high_only, middle_only):
        for path in data_files(data_dir, split, level):
            digest.update(f"{level} {file_io.sha256(path)}\n".encode())
    return {"data_sha256": digest.hexdigest(), "levels": list(_levels(high_only, middle_only))}


def _passages(path: str) -> Iterator[tuple[str, str]]:
    """Yields (place for messages, JSON text of one passage) of a file of either layout."""
    if os.path.basename(path) != _MERGED:
        yield path, file_io.read_text(path, "RACE")
        return
    with file_io.open_input(path, "RACE", "rb") as file:
        for number, text in file_io.text_lines(file, path):
            if text.strip():
                yield f"{path} line {number}", text


def read_passages(path: str) -> Iterator[dict[str, Any]]:
    """Yields JSON objects of passages in a file: article, questions, options, answers and id."""
    for place, text in _passages(path):
        yield _checked_passage(place, text)


def _checked_passage(place: str, text: str) -> dict[str, Any]:
    """Parses and checks the JSON text of a passage; `place`: its file and line, for messages."""

    def check(condition: bool, problem: str) -> None:
        """Raises the error of the passage with this problem unless the condition holds."""
        if not condition:
            raise file_io.InputError(f"{place}: {problem}")

    try:
        value = file_io.parse_json(text)
    except file_io.InputError as error:
        raise file_io.InputError(
            f"{place}: expected one JSON object with the keys {', '.join(_PASSAGE)}; {error}"
        ) from error
    json_shapes.check(value, _PASSAGE, f"{place}: passage")
    json_shapes.check_text(value, place)
    passage = cast(dict[str, Any], value)
    passage["id"], count = str(passage["id"]), len(passage["questions"])
    for key in ("options", "answers"):
        found = len(passage[key])
        check(found == count, f"{key} must be {count}, one per question; found {found}")
    questions = zip(passage["options"], passage["answers"], strict=True)
    for number, (choices, answer) in enumerate(questions, 1):
        fits = len(choices) == NUM_CHOICES
        check(fits, f"question {number}: expected {NUM_CHOICES} options, found {choices!r}")
        is_letter = len(answer) == 1 and answer in _LETTERS
        check(is_letter, f"question {number}: answer {answer!r}, expected one of A, B, C, D")
    return passage


def ending(question: str, option: str) -> str:
    """Returns the question with the option in its blanks, or appended if there is no blank."""
    return question.replace(_BLANK, option) if _BLANK in question else f"{question} {option}"


def single_blanks(question: str) -> str:
    """Returns the question of a user, who may write a blank as several underscores, with one each.

    In RACE's own questions each underscore is a blank, as in the reference.
    """
    return re.sub(f"{_BLANK}+", _BLANK, question)


def iter_race_examples(
    data_dir: str,
    split: str,
    do_lower_case: bool = True,
    high_only: bool = False,
    middle_only: bool = False,
    use_spm: bool = True,
) -> Iterator[RaceExample]:
    """Yields the examples of a split one at a time.

    Args:
      do_lower_case: whether to lower-case the texts.
      high_only, middle_only: whether to omit the other level.
      use_spm: whether to normalize texts for SentencePiece.

    Raises:
      file_io.InputError: two passages have the same id, or see `read_passages`.
    """
    clean: Callable[[str], str] = str
    if use_spm:
        clean = functools.partial(tokenization.preprocess_text, lower=do_lower_case)
    count = 0
    places: dict[str, str] = {}  # of the passage with this id
    for level in _levels(high_only, middle_only):
        for path in data_files(data_dir, split, level):
            for place, text in _passages(path):
                passage = _checked_passage(place, text)
                if (other := places.setdefault(passage["id"], place)) != place:
                    raise file_io.InputError(
                        f"{place}: the id {passage['id']!r} is already that of {other}; give each "
                        "passage of a split its own, as ids of questions begin with it"
                    )
                article = clean(passage["article"])
                rows = zip(passage["questions"], passage["options"], strict=True)
                for number, (question, options) in enumerate(rows):
                    yield RaceExample(
                        guid=f"{passage['id']}#{number + 1}",
                        example_id=passage["id"],
                        article=article,
                        endings=tuple(clean(ending(question, option)) for option in options),
                        label=_LETTERS.index(passage["answers"][number]),
                        level=level,
                    )
                    count += 1
    if not count:
        raise file_io.InputError(f"RACE: there is no question in the {split} data of {data_dir}")
    logging.info("RACE %s: %d questions read", split, count)


def read_race_examples(
    data_dir: str,
    split: str,
    do_lower_case: bool = True,
    high_only: bool = False,
    middle_only: bool = False,
    use_spm: bool = True,
) -> list[RaceExample]:
    """Reads a split, the middle level first; for the arguments see `iter_race_examples`."""
    return list(iter_race_examples(data_dir, split, do_lower_case, high_only, middle_only, use_spm))


# --- features ---------------------------------------------------------------------------------


def convert_example(
    example: RaceExample,
    max_seq_length: int,
    max_qa_length: int,
    tokenizer: tokenization.FullTokenizer,
    cuts: model_inputs.Cuts | None = None,
) -> example_data.Features:
    """Converts a question to features.

    The input of each option is ``[CLS] article [SEP] question and option [SEP]``.

    Args:
      max_seq_length: S; the article is cut at its end to fit.
      max_qa_length: maximum tokens of question and option, of which the last are kept.
      cuts: counts questions of which any input is cut; None: they are not counted.

    Returns:
      Dict of arrays: input_ids, input_mask, segment_ids int64 [C * S], choice after choice;
      label_ids and is_real_example int64 [].
    """
    article, num_tokens, num_kept = tokenizer.encode(example.article), 0, 0
    choices = []
    for ending in map(tokenizer.encode, example.endings):
        ids = model_inputs.truncate_front_and_first(article, ending, max_qa_length, max_seq_length)
        num_tokens += len(article) + len(ending)
        num_kept += sum(map(len, ids))
        choices.append(
            model_inputs.pack(
                *ids, tokenizer.cls_id, tokenizer.sep_id, max_seq_length, tokenizer.pad_id
            )
        )
    if cuts is not None:
        cuts.add(num_tokens, num_kept)
    arrays = map(np.concatenate, zip(*choices, strict=True))
    return {
        **dict(zip(model_inputs.NAMES, arrays, strict=True)),
        "label_ids": np.int64(example.label),
        "is_real_example": np.int64(1),
    }


def feature_specs(seq_length: int) -> tuple[tfrecord.FeatureSpec, ...]:
    """Returns the specification of each feature: sequences [C, S] of this length S, and scalars."""
    spec = tfrecord.FeatureSpec
    shape = (NUM_CHOICES, seq_length)
    return (
        *(spec(name, "int64", shape, sequence=True) for name in model_inputs.NAMES),
        spec("label_ids", "int64"),
        spec("is_real_example", "int64"),
        spec("level", "int64"),
    )


# --- evaluation and prediction ----------------------------------------------------------------


METRICS = (*(f"eval_accuracy_{level}" for level in LEVELS), *("eval_accuracy", "eval_loss", "loss"))


class Evaluator(metrics.Evaluator):
    """Accuracy and loss over all questions, and the accuracy of each existing level."""

    def __init__(self) -> None:
        super().__init__((("eval_accuracy", metrics.accuracy),), labels=_LETTERS)
        self._rows["level"] = []

    def result(self) -> dict[str, float]:
        """Returns ``eval_accuracy`` (also of each level), ``eval_loss`` and ``loss``."""
        names = ("level", "label_ids", "predictions")
        codes, labels, predictions = (np.concatenate(self._rows[name]) for name in names)
        by_level = {
            f"eval_accuracy_{level}": metrics.accuracy(labels[of_level], predictions[of_level])
            for code, level in enumerate(LEVELS)
            if np.any(of_level := codes == code)
        }
        return {**super().result(), **by_level}


def _eval_outputs(outputs: Tensors, features: Tensors) -> dict[str, "tf.Tensor"]:
    """Returns the rows of `glue.eval_outputs`, and ``level`` [B], index in `LEVELS`."""
    return {**glue.eval_outputs(outputs, features), "level": features["level"]}


def write_predictions(
    output_dir: str, rows: contracts.Rows, ids: Sequence[str], prefix: str | None = None
) -> dict[str, float]:
    """Writes ``predict_results.txt`` (scores) and ``predictions.tsv`` (one answer per question).

    Args:
      rows: {name: array [B, …]}, outputs of `_eval_outputs` in the order of the input.

    Returns:
      The scores by name, see `Evaluator`.
    """
    scores = prediction_files.write_scores(output_dir, Evaluator(), rows)
    columns = (ids, rows["predictions"], rows["probabilities"])
    predictions = prediction_files.predictions(_LETTERS, *columns)
    prediction_files.write_table(output_dir, _LETTERS, predictions)
    return scores


def make_task(
    dropout_prob: float = 0.1, head: head_config.Head = head_config.NO_LAYER
) -> contracts.Task:
    """Returns the `contracts.Task` of RACE."""
    from albert.model import heads
    from albert.training import learning_signals

    def build_model(config: AlbertConfig, compute: "Compute", seed: int) -> heads.Model:
        """Builds the model; `seed` is that of the new variables."""
        return heads.MultipleChoiceModel(config, NUM_CHOICES, dropout_prob, compute, seed, head)

    return contracts.Task(
        name="race",
        build_model=build_model,
        eval_outputs=_eval_outputs,
        evaluator=Evaluator,
        train_metrics=glue.batch_accuracy,
        best_metric="eval_accuracy",
        metrics=METRICS,
        learning_signals=learning_signals.label_signals,
    )


def make_data(
    tokenizer: tokenization.FullTokenizer,
    max_seq_length: int,
    max_qa_length: int,
    data_dir: str,
    cache: example_data.FeatureCache,
    high_only: bool = False,
    middle_only: bool = False,
) -> "RaceData":
    """Returns the `contracts.Data` of RACE.

    Args:
      max_seq_length, max_qa_length: S, and the maximum tokens of question and option.
      cache: where the features are kept; its settings contain `max_qa_length`.
    """
    levels = {"high_only": high_only, "middle_only": middle_only}
    _levels(**levels)
    if not 1 <= max_qa_length <= max_seq_length - RESERVED_TOKENS:
        raise file_io.InputError(
            f"max_qa_length={max_qa_length} must be at least 1 and at most {RESERVED_TOKENS} below "
            f"max_seq_length={max_seq_length}: the article, [CLS] and two [SEP] also need space; "
            "give a lower max_qa_length or a higher max_seq_length"
        )
    return RaceData(
        name="race",
        cache=cache,
        tokenizer=tokenizer,
        max_seq_length=max_seq_length,
        max_qa_length=max_qa_length,
        data_dir=data_dir,
        levels=levels,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class RaceData(example_data.ExampleData[RaceExample]):
    """The data of RACE; see `make_data`, whose switches are `levels`: {"high_only": bool, …}."""

    tokenizer: tokenization.FullTokenizer
    max_seq_length: int
    max_qa_length: int
    data_dir: str
    levels: Mapping[str, bool]

    @property
    def limits(self) -> dict[str, int]:
        """Returns {feature: number below which its integers must be}."""
        return {"label_ids": NUM_CHOICES, "is_real_example": 2, "level": len(LEVELS)}

    def specs(self, split: str) -> Sequence[tfrecord.FeatureSpec]:
        """Returns the features in records of the split "train", "dev" or "test"."""
        return feature_specs(self.max_seq_length)

    def files(self, split: str) -> list[str]:
        """Returns the paths of the source files of the split "train", "dev" or "test"."""
        return files(self.data_dir, split, **self.levels)

    def fingerprint(self, split: str) -> dict[str, Any]:
        """Returns a JSON-ready dict that identifies the data of a split, such as its SHA-256."""
        return fingerprint(self.data_dir, split, **self.levels)

    def examples(self, split: str) -> Iterator[RaceExample]:
        """Yields the questions of a split; the tokenizer normalizes texts."""
        return iter_race_examples(self.data_dir, split, use_spm=False, **self.levels)

    def dev_requests(self) -> Iterator[dict[str, Any]]:
        """Yields {"article", "question", "options"} of the first question of each dev passage."""
        for passage in itertools.chain.from_iterable(map(read_passages, self.files("dev"))):
            if passage["questions"]:
                question, options = passage["questions"][0], passage["options"][0]
                yield {"article": passage["article"], "question": question, "options": options}

    def inputs(
        self, number: int, example: RaceExample, cuts: model_inputs.Cuts
    ) -> list[example_data.Features]:
        """Returns the features of a question's record; see `ExampleData.inputs`."""
        lengths = (self.max_seq_length, self.max_qa_length)
        features = convert_example(example, *lengths, self.tokenizer, cuts)
        return [{**features, "level": np.int64(LEVELS.index(example.level))}]

    def write_files(
        self, output_dir: str, rows: contracts.Rows, ids: list[str]
    ) -> dict[str, float]:
        """Does what `ExampleData.write_files` says; see `write_predictions` for the files."""
        return write_predictions(output_dir, rows, ids)

    def outcomes(self, rows: contracts.Rows, ids: list[str]) -> Iterator[outcomes.Outcome]:
        """Yields label and prediction of each question."""
        texts = outcomes.texts_of(ids, ((row.guid, row.text) for row in self.examples("test")))
        for outcome in outcomes.class_outcomes(_LETTERS, ids, texts, rows):
            passage = outcome.guid.rpartition("#")[0]
            yield dataclasses.replace(outcome, groups={"passage": passage})

"""Answers questions about texts with a model fine-tuned on SQuAD."""

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import IO

import numpy as np
from absl import logging

from albert.io import file_io, tables
from albert.model import batching, model_folder
from albert.serving import answer_text, inference, requests
from albert.tasks.squad import answers as squad_answers
from albert.tasks.squad import features as squad_features
from albert.tasks.squad import metrics as squad_metrics
from albert.tasks.squad import positions, question_files
from albert.tasks.squad import task as squad_task

_INPUTS = ("input_ids", "input_mask", "segment_ids", "p_mask")
BATCH_SIZE = 16  # windows per batch
_CACHED_TEXTS = 128  # limits the memory of a server


@dataclasses.dataclass(frozen=True, slots=True)
class Question:
    """A question about a text.

    Attributes:
      question, context: the question and the text.
      guid: its id.
      place: its origin, for messages; "" if unknown.
      num_answers: maximum number of answers in its JSON.
    """

    question: str
    context: str
    guid: str = ""
    place: str = ""
    num_answers: int = 3


@dataclasses.dataclass(frozen=True)
class Reply:
    """The answers of a model to a question.

    Attributes:
      question: `Question`.
      answers: list of `squad_answers.Answer`, best first; `start` and `end` are positions in the
        text.
      null_odds: the odds that there is no answer; None for SQuAD 1.1.
      threshold: null odds from which no answer is given; None for SQuAD 1.1.
      truncated: whether the question was longer than the model reads and was cut; texts never are.
    """

    question: Question
    answers: list
    null_odds: float | None = None
    threshold: float | None = None
    truncated: bool = False

    @property
    def has_answer(self) -> bool:
        """Returns whether an answer was found and its null odds are below the threshold."""
        if self.answers[0].start is None:
            return False
        return self.null_odds is None or self.null_odds < self.threshold


@dataclasses.dataclass(frozen=True)
class Place:
    """A token of a window of a question and its text.

    Attributes:
      window, token: their numbers from 0.
      text: the token's characters in the text; "" for [CLS] and tokens of the question.
    """

    window: int
    token: int
    text: str


@dataclasses.dataclass(frozen=True)
class Explanation:
    """An answer and the gold answer.

    Attributes:
      reply: `Reply`.
      start, end: `Place`s with the highest scores.
      gold: `Place`s of the first gold answer's first and last token, in the window with most of the
        text around it; None if there is no answer or its position is unknown.
    """

    reply: Reply
    start: Place
    end: Place
    gold: tuple | None


class Answerer:
    """A fine-tuned model that answers questions.

    Args:
      model_dir: output folder of run_squad_v1 or run_squad_v2, or a serving folder.
      runtime, threads: for serving folders; see `runtimes.load`.

    Attributes:
      max_seq_length: S of the training.

    Raises:
      file_io.InputError: the folder holds no such model.
    """

    form = requests.QUESTION
    metric = "f1"
    input_forms = output_forms = ("jsonl",)
    batches_ahead = 4
    gives_numbers = False

    def __init__(
        self,
        model_dir: str | inference.FoundModel,
        runtime: str = "auto",
        threads: int | None = None,
    ) -> None:
        model = inference.find(model_dir, *squad_task.KINDS)
        folder = model.folder
        self.max_seq_length = folder.length()
        self._settings = folder.settings_as(squad_task.Settings)
        self._tokenizer = model_folder.load_tokenizer(folder.source, folder.config)
        # It caches texts, so further questions about a text cost little.
        self._featurizer = squad_features.Featurizer(
            self._tokenizer,
            **self._settings.window,
            is_training=False,
            paragraphs_kept=_CACHED_TEXTS,
        )
        self.infer = model.load(runtime, threads)
        self._threshold = model.null_odds_threshold()

    def ask(self, question: str, context: str) -> Reply:
        """Answers a question about a text of any length.

        Args:
          question: text of the question.
          context: the text.

        Returns:
          `Reply`.

        Raises:
          file_io.InputError: the question or the text is empty, or the text does not fit the
            vocabulary.
        """
        (reply,) = self.predict([Question(question, context)])
        return reply

    def predict(
        self, questions: Iterable[Question], batch_size: int = BATCH_SIZE, batches_ahead: int = 4
    ) -> Iterator[Reply]:
        """Yields a `Reply` for each question, in order; batches hold windows of several questions.

        Args:
          questions: iterable of `Question`.
          batch_size: number of windows per batch.
          batches_ahead: reads `batch_size` times this many questions at a time.

        Raises:
          file_io.InputError: see `ask`; names the question's `place`.
        """
        questions = iter(questions)
        while block := list(itertools.islice(questions, batch_size * batches_ahead)):
            examples = [
                squad_features.SquadExample("question", q.question, q.context) for q in block
            ]
            windows = [
                self._windows_of(example, question.place)
                for example, question in zip(examples, block, strict=True)
            ]
            every = list(itertools.chain(*windows))
            for number, window in enumerate(every):
                window.unique_id = number
            results = self._results(every, batch_size)
            for question, example, group in zip(block, examples, windows, strict=True):
                yield self._reply(question, example, group, results)

    def read_lines(
        self,
        lines: Iterable[bytes],
        name: str,
        form: str = "jsonl",
        context: str | None = None,
        num_answers: int = 3,
    ) -> Iterator[Question]:
        """Yields a `Question` for each object of a jsonl file; see `answer_text.read_questions`."""
        for guid, place, question, text in answer_text.read_questions(lines, name, context):
            yield Question(question, text, guid, place, num_answers)

    def read(self, path: str, labeled: bool) -> tuple[list, list | None]:
        """Returns the questions of a SQuAD file and their answers; see `predictors.Predictor`."""
        examples = squad_answers.read_squad_examples(path, is_training=False)
        questions = [
            Question(e.question_text, e.paragraph_text, e.qas_id, f"{path}: {e.qas_id}")
            for e in examples
        ]
        if not squad_answers.answers_known(examples):
            return questions, None
        return questions, [list(example.answers or ()) for example in examples]

    def of_request(self, fields: dict) -> Question:
        """Returns the example of a request."""
        return Question(fields["question"], fields["context"], num_answers=fields["num_answers"])

    def batch_size(self, examples: list) -> int:
        """Returns the batch size for examples of requests that are computed together."""
        return BATCH_SIZE

    def to_json(self, result: Reply) -> dict:
        """Returns a JSON-ready `Reply`."""
        return answer_text.to_dict(result)

    def write(self, file: IO[str], form: str, results: Iterable[Reply]) -> None:
        """Writes results as jsonl."""
        file.writelines(tables.json_line(self.to_json(result)) for result in results)

    def answers(self, results: Iterable[Reply]) -> list:
        """Returns the texts of the best answers, "" for none, to compare and score."""
        return [result.answers[0].text if result.has_answer else "" for result in results]

    def score(self, gold: list, answers: list) -> float:
        """Returns the F1 of the texts in percentage points."""
        gold, answers = dict(enumerate(gold)), dict(enumerate(answers))
        _, f1 = squad_metrics.raw_scores_v2(gold, answers)
        return 100 * float(np.mean(list(f1.values())))

    def explain(self, example: squad_answers.SquadExample) -> Explanation:
        """Answers a question of a data set and returns an `Explanation`.

        Args:
          example: `squad_utils.SquadExample`, not of training.

        Raises:
          file_io.InputError: see `ask`.
        """
        windows = self._windows_of(example)
        for number, window in enumerate(windows):
            window.unique_id = number
        results = self._results(windows)
        start, end = self._highest(example, windows, results)
        question = Question(example.question_text, example.paragraph_text, example.qas_id)
        reply = self._reply(question, example, windows, results)
        return Explanation(reply, start, end, _gold(example, windows))

    def _length_of(self, question: str) -> int:
        return len(self._tokenizer.encode(question))

    def _windows_of(
        self, example: squad_answers.SquadExample, place: str = ""
    ) -> list[squad_features.SquadFeatures]:
        at = f"{place}: " if place else ""
        if not example.question_text.strip():
            raise file_io.InputError(f"{at}the question is empty")
        length, most = self._length_of(example.question_text), self._settings.max_query_length
        if length > most:
            logging.warning(
                "%sThe question has %d tokens; the model reads the first %d", at, length, most
            )
        (windows,) = self._featurizer.batch([example], [0])
        if isinstance(windows, str):
            raise file_io.InputError(f"{at}the text cannot be searched: {windows}")
        return windows

    def _highest(
        self,
        example: squad_answers.SquadExample,
        windows: Sequence[squad_features.SquadFeatures],
        results: dict[int, dict[str, np.ndarray]],
    ) -> tuple[Place, ...]:
        """Returns `Place`s of the highest start and end; for SQuAD 2.0 of that start's end."""
        if self._threshold is None:
            places = []
            for name in ("start_log_prob", "end_log_prob"):
                best = max(windows, key=lambda w: results[w.unique_id][name].max())  # noqa: B023
                places.append(_place(example, best, int(results[best.unique_id][name].argmax())))
            return tuple(places)
        best = max(windows, key=lambda w: results[w.unique_id]["start_top_log_probs"][0])
        scores = results[best.unique_id]
        return tuple(
            _place(example, best, int(scores[f"{n}_top_index"][0])) for n in ("start", "end")
        )

    def _results(
        self, windows: Sequence[squad_features.SquadFeatures], batch_size: int = BATCH_SIZE
    ) -> dict[int, dict[str, np.ndarray]]:
        """Returns the scores of windows by unique id."""
        results = {}
        columns = {
            name: np.int32([getattr(window, name) for window in windows]) for name in _INPUTS
        }
        widest = self._settings.widest_beam
        for indices, batch in batching.trimmed_batches(columns, batch_size, widest):
            rows = squad_answers.scores_of(self.infer(batch), batch["input_mask"])
            for place, number in enumerate(indices):
                results[windows[number].unique_id] = {
                    name: row[place] for name, row in rows.items()
                }
        return results

    def _reply(
        self,
        question: Question,
        example: squad_answers.SquadExample,
        windows: Sequence[squad_features.SquadFeatures],
        results: dict[int, dict[str, np.ndarray]],
    ) -> Reply:
        settings = self._settings
        limits = (settings.n_best_size, settings.max_answer_length)
        is_cut = self._length_of(example.question_text) > settings.max_query_length
        if self._threshold is None:
            (answers,) = squad_answers.best_answers_v1([example], windows, results, *limits)
            return Reply(question, answers, truncated=is_cut)
        beams = (settings.start_n_top, settings.end_n_top)
        (answers,) = squad_answers.best_answers_v2([example], windows, results, *limits, *beams)
        null_odds = squad_answers.find_null_odds([example], windows, results)
        return Reply(question, answers, null_odds[example.qas_id], self._threshold, is_cut)


def _place(
    example: squad_answers.SquadExample, window: squad_features.SquadFeatures, token: int
) -> Place:
    """Returns the `Place` of a token of a window."""
    piece, text = token - window.text_begin, ""
    if 0 <= piece < len(window.piece_start):
        text = example.paragraph_text[window.piece_start[piece] : window.piece_end[piece] + 1]
    return Place(window.unique_id, token, text)


def _gold(
    example: squad_answers.SquadExample, windows: Sequence[squad_features.SquadFeatures]
) -> tuple[Place, ...] | None:
    """Returns `Explanation.gold`."""
    targets = positions.targets(question_files.Questions([example], windows))
    whole = [w for w in windows if not targets["is_impossible"][w.unique_id]]
    if not whole:
        return None

    def ends(w):
        return [targets[f"{name}_positions"][w.unique_id] for name in ("start", "end")]

    best = max(whole, key=lambda w: min(ends(w)[0] - w.text_begin, w.text_end - ends(w)[1]))
    return tuple(_place(example, best, int(token)) for token in ends(best))

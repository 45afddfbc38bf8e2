"""Answers questions about texts with a model fine-tuned on SQuAD."""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from absl import logging

from albert.io import file_io, tables
from albert.model import model_folder
from albert.serving import inference, requests, tensors
from albert.serving.predictor import Arrays, Predictor
from albert.tasks import kinds
from albert.tasks.squad import answers as squad_answers
from albert.tasks.squad import features as squad_features
from albert.tasks.squad import metrics as squad_metrics
from albert.tasks.squad import positions
from albert.tasks.squad import task as squad_task

Results = Mapping[int, Arrays]  # of windows, by unique id
Asked = Sequence[tuple[squad_features.SquadExample, list[squad_features.SquadFeatures]]]
BATCH_SIZE = 16  # windows per batch
_CACHED_TEXTS = 128  # limits the memory of a server


@dataclasses.dataclass(frozen=True, slots=True)
class Question:
    """A question about a text."""

    question: str
    context: str
    guid: str = ""
    place: str = ""  # its origin, for messages; "" if unknown
    num_answers: int = 3  # maximum number of answers in its JSON


@dataclasses.dataclass(frozen=True)
class Reply:
    """The answers of a model to a question."""

    question: Question
    answers: list  # the best first; `start` and `end` are positions in the text
    null_odds: float | None = None  # the odds that there is no answer; None for SQuAD 1.1
    threshold: float | None = None  # null odds from which no answer is given; None for SQuAD 1.1
    truncated: bool = False  # the question was longer than the model reads; texts are never cut

    @property
    def has_answer(self) -> bool:
        """Returns whether an answer was found and its null odds are below the threshold."""
        if self.answers[0].start is None:
            return False
        if self.null_odds is None or self.threshold is None:
            return True
        return self.null_odds < self.threshold

    def to_dict(self) -> dict[str, Any]:
        """Returns a JSON-ready dict of the best answers."""
        question = self.question
        answers = [
            {"text": a.text, "probability": float(a.probability), "start": a.start, "end": a.end}
            for a in self.answers
            if a.start is not None
        ][: question.num_answers]
        best = answers[0]["text"] if self.has_answer else ""
        row = {
            "id": question.guid, "question": question.question, "answer": best, "answers": answers
        }  # fmt: skip
        if self.null_odds is not None and self.threshold is not None:
            row |= {"null_odds": float(self.null_odds), "threshold": float(self.threshold)}
        if self.truncated:
            row["truncated"] = True
        return row


@dataclasses.dataclass(frozen=True)
class Place:
    """A token of a window of a question and its text, by the numbers of both from 0."""

    window: int
    token: int
    text: str  # the token's characters in the text; "" for [CLS] and tokens of the question


@dataclasses.dataclass(frozen=True)
class Explanation:
    """An answer, the places with the highest scores, and the gold answer."""

    reply: Reply
    start: Place
    end: Place
    # Places of the first gold answer's first and last token, in the window with most of the text
    # around it; None if there is no answer or its position is unknown.
    gold: tuple | None


class Answerer(Predictor[Question, Asked, Reply]):
    """A model that answers questions about texts; see `Predictor`."""

    kinds = squad_task.KINDS
    form = requests.QUESTION
    metric = "f1"
    batches_ahead = 4

    def _read_settings(self, folder: model_folder.ModelFolder) -> int:
        self._settings = folder.settings_as(squad_task.Settings)
        self.min_length = self._settings.widest_beam
        return model_folder.MIN_LENGTH

    def _finish(self, model: inference.FoundModel) -> None:
        # It caches texts, so further questions about a text cost little.
        self._featurizer = squad_features.Featurizer(
            self.tokenizer,
            **self._settings.window,
            is_training=False,
            paragraphs_kept=_CACHED_TEXTS,
        )
        self._threshold = model.null_odds_threshold()

    def ask(self, question: str, context: str) -> Reply:
        """Answers a question about a text of any length."""
        (reply,) = self.predict([Question(question, context)])
        self._warn_if_cut(question, "")
        return reply

    def check(self, question: Question) -> None:
        """Rejects an empty question, and a text that cannot be searched."""
        self._windows_of(_example(question), question.place)

    def predict(
        self, questions: Iterable[Question], batch_size: int = BATCH_SIZE, batches_ahead: int = 4
    ) -> Iterator[Reply]:
        """Yields a reply for each question, in order; B counts windows. See `Predictor`."""
        return self._predict(questions, batch_size, batches_ahead)

    def _encode(self, examples: Sequence[Question]) -> tuple[Arrays, Asked]:
        asked = []
        for question in examples:
            example = _example(question)
            windows = self._windows_of(example, question.place)
            if question.place:  # not for those of a server's clients, whose replies say it
                self._warn_if_cut(question.question, f"{question.place}: ")
            asked.append((example, windows))
        return _inputs([window for _, windows in asked for window in windows]), asked

    def _scores(self, outputs: Arrays, inputs: Arrays) -> Arrays:
        return squad_answers.scores_of(outputs, inputs["input_mask"])

    def _decode(
        self, examples: Sequence[Question], notes: Asked, outputs: Sequence[Arrays]
    ) -> Iterator[Reply]:
        results = dict(enumerate(outputs))
        for question, (example, windows) in zip(examples, notes, strict=True):
            yield self._reply(question, example, windows, results)

    def read_lines(
        self,
        lines: Iterable[bytes],
        name: str,
        form: str = "jsonl",
        context: str | None = None,
        num_answers: int = 3,
        *,
        skipped: list[str] | None = None,
    ) -> Iterator[Question]:
        """Yields a question for each object of a jsonl file; see `Predictor` and `Question`.

        `context` is the text of questions without one; None: each question must have its own.
        """

        def question(number: int, place: str, row: dict[str, Any]) -> Question:
            asked = tables.text_of(row, "question", "question", place)
            text = context
            if text is None or "context" in row:
                text = tables.text_of(row, "context", "context_file", place)
            guid = tables.name_of(row, "id", "id", place) if "id" in row else str(number)
            return Question(asked, text, guid, place, num_answers)

        return tables.each(tables.read_rows(lines, name, "jsonl"), question, skipped)

    def read(self, path: str, labeled: bool) -> tuple[list[Question], list | None]:
        examples = squad_answers.read_squad_examples(path, is_training=False)
        questions = [
            Question(e.question_text, e.paragraph_text, e.qas_id, f"{path}: {e.qas_id}")
            for e in examples
        ]
        if not squad_answers.answers_known(examples):
            return questions, None
        return questions, [list(example.answers or ()) for example in examples]

    def read_request(self, fields: dict[str, Any]) -> Question:
        return Question(fields["question"], fields["context"], num_answers=fields["num_answers"])

    def batch_size(self, examples: Sequence[Question]) -> int:
        return BATCH_SIZE

    def to_json(self, result: Reply) -> dict[str, Any]:
        return result.to_dict()

    def tensors(self) -> tuple[tensors.Tensor, ...]:
        """Returns answer [B], "" for none."""
        return (tensors.ANSWER,)

    def answers(self, results: Iterable[Reply]) -> list:
        """Returns the texts of the best answers, "" for none, to compare and score."""
        return [result.answers[0].text if result.has_answer else "" for result in results]

    def score(self, gold: list, answers: list) -> float:
        by_id = [{str(i): row for i, row in enumerate(rows)} for rows in (gold, answers)]
        _, f1 = squad_metrics.raw_scores_v2(*by_id)
        return 100 * float(np.mean(list(f1.values())))

    def explain(self, example: squad_features.SquadExample) -> Explanation:
        """Answers a question of a data set, not of training; see `ask`."""
        windows = self._windows_of(example)
        results = dict(enumerate(self._compute(_inputs(windows), BATCH_SIZE)))
        start, end = self._highest(example, windows, results)
        question = Question(example.question_text, example.paragraph_text, example.qas_id)
        reply = self._reply(question, example, windows, results)
        return Explanation(reply, start, end, _gold(example, windows))

    def _length_of(self, question: str) -> int:
        return len(self.tokenizer.encode(question))

    def _warn_if_cut(self, question: str, at: str) -> None:
        """Warns of a question that is longer than the model reads; `at`: start of the warning."""
        length, most = self._length_of(question), self._settings.max_query_length
        if length > most:
            logging.warning(
                "%sThe question has %d tokens; the model reads the first %d", at, length, most
            )

    def _windows_of(
        self, example: squad_features.SquadExample, place: str = ""
    ) -> list[squad_features.SquadFeatures]:
        at = f"{place}: " if place else ""
        if not example.question_text.strip():
            raise file_io.InputError(f"{at}the question is empty")
        (windows,) = self._featurizer.batch([example], [0])
        if isinstance(windows, str):
            remedy = "; remove what is no text, or give parts of it"
            remedy = remedy if windows == squad_features.MISMATCH else ""
            raise file_io.InputError(f"{at}the text cannot be searched: {windows}{remedy}")
        return windows

    def _highest(
        self,
        example: squad_features.SquadExample,
        windows: Sequence[squad_features.SquadFeatures],
        results: Results,
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

    def _reply(
        self,
        question: Question,
        example: squad_features.SquadExample,
        windows: Sequence[squad_features.SquadFeatures],
        results: Results,
    ) -> Reply:
        settings = self._settings
        limits = (settings.n_best_size, settings.max_answer_length)
        is_cut = self._length_of(example.question_text) > settings.max_query_length
        if self._threshold is None:
            (answers,) = squad_answers.best_answers_v1([example], windows, results, *limits)
            return Reply(question, _with_text(answers), truncated=is_cut)
        (answers,) = squad_answers.best_answers_v2(
            [example], windows, results, *limits, *settings.beams
        )
        null_odds = squad_answers.find_null_odds([example], windows, results)
        odds = null_odds[example.qas_id]
        return Reply(question, _with_text(answers), odds, self._threshold, is_cut)


def _with_text(answers: Sequence[squad_answers.Answer]) -> list[squad_answers.Answer]:
    """Returns the answers except spans of white space, which only the scripts keep."""
    kept = [answer for answer in answers if answer.text or answer.start is None]
    return squad_answers.with_probabilities(kept or [squad_answers.Answer("", 1.0, 0.0, 0.0)])


def _example(question: Question) -> squad_features.SquadExample:
    return squad_features.SquadExample("question", question.question, question.context)


def _inputs(windows: Sequence[squad_features.SquadFeatures]) -> Arrays:
    """Numbers windows and returns their inputs."""
    for number, window in enumerate(windows):
        window.unique_id = number
    return {
        name: np.array([getattr(window, name) for window in windows], np.int32)
        for name in kinds.KINDS[squad_task.V2].inputs
    }


def _place(
    example: squad_features.SquadExample, window: squad_features.SquadFeatures, token: int
) -> Place:
    piece, text = token - window.text_begin, ""
    if 0 <= piece < len(window.piece_start):
        text = example.paragraph_text[window.piece_start[piece] : window.piece_end[piece] + 1]
    return Place(window.unique_id, token, text)


def _gold(
    example: squad_features.SquadExample, windows: Sequence[squad_features.SquadFeatures]
) -> tuple[Place, ...] | None:
    """Returns `Explanation.gold`."""
    targets = positions.targets(squad_answers.Questions([example], list(windows)))
    whole = [w for w in windows if not targets["is_impossible"][w.unique_id]]
    if not whole:
        return None

    def ends(w: squad_features.SquadFeatures) -> list[int]:
        return [targets[f"{name}_positions"][w.unique_id] for name in ("start", "end")]

    best = max(whole, key=lambda w: min(ends(w)[0] - w.text_begin, w.text_end - ends(w)[1]))
    return tuple(_place(example, best, int(token)) for token in ends(best))

"""Predicts with fine-tuned models: labels of texts, and answers to questions.

What a model needs beside its weights is in the folder that the training run wrote, see
`model_folder`. Letters in shapes: B batch, K labels, S sequence.
"""

import dataclasses
import itertools

import numpy as np
from absl import logging

from albert.io import file_io, tables
from albert.model import batching, head_config, model_folder
from albert.serving import inference
from albert.tasks import custom, glue
from albert.tasks.squad import answers as squad_answers
from albert.tasks.squad import features as squad_features
from albert.tasks.squad import task as squad_task

_TEXT_INPUTS = ("input_ids", "input_mask", "segment_ids")
_WINDOW_INPUTS = (*_TEXT_INPUTS, "p_mask")
_BATCH = 16  # windows that go through the model together
_QUESTIONS_AHEAD = 64  # questions whose windows are made before the first is answered
_TEXTS_KEPT = 128  # texts of any length, which a server would else keep for ever


# --- labels of texts ----------------------------------------------------------------------------


def save_classifier_description(
    write, output_dir, row, config, source, max_seq_length, dropout_prob, head=head_config.NO_LAYER
):
    """Makes the output folder of a classifier's run usable by itself.

    Args:
      write: `model_folder.write`, or after a run without training `model_folder.write_if_absent`.
      output_dir: the folder.
      row: `glue.GlueTask` or `custom.CustomTask`.
      config: `encoder.AlbertConfig`.
      source: `sources.Source` with the vocabulary.
      max_seq_length: S of the training.
      dropout_prob: dropout of the pooled output in training.
      head: `head_config.Head`.
    """
    settings = {
        "task_name": row.name,
        "labels": list(row.labels),
        "max_seq_length": max_seq_length,
        "classifier_dropout_prob": dropout_prob,
        "columns": dataclasses.asdict(row.columns),
        **head.settings,
    }
    if write(output_dir, glue.KIND, config, source, settings):
        custom.save_labels(output_dir, row.labels)


class TextPredictor:
    """A fine-tuned model, loaded from the folder of its training run, or a serving folder.

    Args:
      model_dir: the folder; of a training run the best checkpoint is used, else the last.
      runtime, threads: of serving folders; see `runtimes.load`.

    Attributes:
      labels: K label names by id; empty for regression.
      columns: `tables.Columns` of the training.
      max_seq_length: S of the training; longer texts are cut.
      tokenizer: `tokenization.FullTokenizer`.

    Raises:
      file_io.InputError: no such folder, or one of another kind of model or without a checkpoint.
    """

    def __init__(self, model_dir, runtime="auto", threads=None):
        found = inference.find(model_dir, glue.KIND)
        folder = found.folder
        self.columns = tables.Columns(**folder.setting("columns", tables.are_columns))
        labels, name = custom.labels_of(folder), folder.setting("task_name", str)
        self._row = custom.CustomTask({}, self.columns, labels, name)
        self.labels = self._row.labels
        self.tokenizer = model_folder.load_tokenizer(folder.source, folder.config)
        self.max_seq_length = folder.length(least=glue.least_length(self._row))
        self._infer = found.load(runtime, threads)

    def predict(self, texts, batch_size=32):
        """Yields a `tables.Prediction` for each text, in order; ids count from 0.

        Args:
          texts: iterable of str, or of pairs of str for a model of two texts.
          batch_size: B; B texts are read ahead.

        Raises:
          file_io.InputError: a text is empty, or not one of as many as the model takes.
        """
        columns = dataclasses.replace(self.columns, guid=None)
        names = [name for name in (columns.text, columns.text_pair) if name]

        def rows():
            for number, text in enumerate(texts):
                parts = (text,) if isinstance(text, str) else tuple(text)
                if len(parts) != len(names):
                    raise file_io.InputError(
                        f"text {number}: the model takes {len(names)}, found {len(parts)}"
                    )
                yield f"text {number}", dict(zip(names, parts, strict=True))

        return self.predict_rows(rows(), columns, batch_size, batches_ahead=1)

    def predict_rows(self, rows, columns, batch_size=32, batches_ahead=64):
        """Yields a `tables.Prediction` for each row of `tables.read_rows`, in order.

        Args:
          rows: iterable of (place for messages, dict by column).
          columns: `tables.Columns`; where no column of ids is named, rows are numbered from 0.
          batch_size: B.
          batches_ahead: that many batches are read at a time, so that texts of similar length can
            be put together; memory does not depend on the number of rows.

        Raises:
          file_io.InputError: `columns` names another number of texts than the model takes, or a
            row lacks one.
        """
        if (columns.text_pair is None) != (self.columns.text_pair is None):
            wanted = "one text, not two" if self.columns.text_pair is None else "two texts, not one"
            raise file_io.InputError(f"this model takes {wanted}: see text_pair_column")
        row_task = dataclasses.replace(self._row, columns=columns)
        numbered = enumerate(rows)
        while window := list(itertools.islice(numbered, batch_size * batches_ahead)):
            examples = [
                row_task.example(
                    row,
                    place,
                    str(number),
                    row_task.no_label,
                    use_spm=False,  # The tokenizer cleans texts up, once.
                    do_lower_case=False,
                )
                for number, (place, row) in window
            ]
            yield from self._predict_window(examples, batch_size)

    def _predict_window(self, examples, batch_size):
        features = [
            glue.convert_example(example, self._row, self.max_seq_length, self.tokenizer)
            for example in examples
        ]
        columns = {
            name: np.stack([f[name] for f in features]).astype(np.int32) for name in _TEXT_INPUTS
        }
        batches = batching.batches_by_length(columns["input_mask"].sum(axis=1), batch_size)
        found = []
        for chosen in batches:
            batch = {name: values[chosen] for name, values in columns.items()}
            found.append(self._infer(batching.trim_arrays(batch, _TEXT_INPUTS)))
        places = batching.places_in(batches)
        indices, probabilities = (
            np.concatenate([outputs[name] for outputs in found])[places]
            for name in ("predictions", "probabilities")
        )
        guids = [example.guid for example in examples]
        return tables.predictions(self.labels, guids, indices, probabilities)


# --- answers to questions -----------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Reply:
    """What a model says to a question.

    Attributes:
      answers: list of `squad_answers.Answer`, best first; `start` and `end` are places in the text.
      null_odds: how much speaks against there being any answer; None under SQuAD 1.1.
      threshold: null odds from which on there is none; None under SQuAD 1.1.
    """

    answers: list
    null_odds: float | None = None
    threshold: float | None = None

    @property
    def has_answer(self):
        """False where no answer was found, or none is in the text."""
        if self.answers[0].start is None:
            return False
        return self.null_odds is None or self.null_odds < self.threshold


@dataclasses.dataclass(frozen=True)
class Place:
    """A token of a window that a question is asked in.

    Attributes:
      window, token: their numbers from 0.
      text: what the token stands for in the text; "" where it belongs to the question or is [CLS].
    """

    window: int
    token: int
    text: str


@dataclasses.dataclass(frozen=True)
class Explanation:
    """An answer beside the gold one.

    Attributes:
      reply: `Reply`.
      start, end: `Place`s with the highest scores.
      gold: `Place`s of the first gold answer's first and last token, in the window with most of the
        text around it; None where there is no answer, or its place is not known.
    """

    reply: Reply
    start: Place
    end: Place
    gold: tuple | None


class Answerer:
    """A fine-tuned model, ready to be asked.

    Args:
      model_dir: output folder of run_squad_v1 or run_squad_v2, or a serving folder.
      runtime, threads: of serving folders; see `runtimes.load`.

    Raises:
      file_io.InputError: the folder holds no such model.
    """

    def __init__(self, model_dir, runtime="auto", threads=None):
        found = inference.find(model_dir, *squad_task.KINDS)
        folder = found.folder
        folder.length()
        self._settings = folder.settings_as(squad_task.Settings)
        self._tokenizer = model_folder.load_tokenizer(folder.source, folder.config)
        # It keeps texts that it has seen, so further questions about one cost little.
        self._featurizer = squad_features.Featurizer(
            self._tokenizer,
            **self._settings.window,
            is_training=False,
            paragraphs_kept=_TEXTS_KEPT,
        )
        self._infer = found.load(runtime, threads)
        self._threshold = found.null_odds_threshold()

    def ask(self, question, context):
        """Answers a question about a text of any length.

        Args:
          question: text of the question.
          context: the text.

        Returns:
          `Reply`.

        Raises:
          file_io.InputError: the question is empty, or the text is or does not fit the vocabulary.
        """
        (reply,) = self.ask_all([("", question, context)])
        return reply

    def ask_all(self, rows):
        """Yields a `Reply` for each question, in order; windows of many go through it together.

        Args:
          rows: iterable of (place for messages or "", question, text).

        Raises:
          file_io.InputError: as of `ask`; with the place.
        """
        rows = iter(rows)
        while block := list(itertools.islice(rows, _QUESTIONS_AHEAD)):
            examples, windows = zip(*(self._windows(*row) for row in block), strict=True)
            every = list(itertools.chain(*windows))
            for number, window in enumerate(every):
                window.unique_id = number
            results = self._results(every)
            for example, found in zip(examples, windows, strict=True):
                yield self._reply(example, found, results)

    def explain(self, example):
        """Answers a question of a data set: an `Explanation`.

        Args:
          example: `squad_utils.SquadExample`, not of training.

        Raises:
          file_io.InputError: see `ask`.
        """
        windows, results = self._search(example)
        start, end = self._highest(example, windows, results)
        reply = self._reply(example, windows, results)
        return Explanation(reply, start, end, _gold(example, windows))

    def _windows(self, place, question, context):
        """`squad_utils.SquadExample` and its windows."""
        example = squad_answers.SquadExample("question", question, context)
        return example, self._windows_of(example, place)

    def _search(self, example):
        """The windows of a question, numbered from 0, and {number: scores}."""
        windows = self._windows_of(example)
        for number, window in enumerate(windows):
            window.unique_id = number
        return windows, self._results(windows)

    def _windows_of(self, example, place=""):
        at = f"{place}: " if place else ""
        if not example.question_text.strip():
            raise file_io.InputError(f"{at}the question is empty")
        length = len(self._tokenizer.encode(example.question_text))
        if length > self._settings.max_query_length:
            logging.warning(
                "%sThe question has %d tokens; the model reads the first %d",
                at,
                length,
                self._settings.max_query_length,
            )
        (windows,) = self._featurizer.batch([example], [0])
        if isinstance(windows, str):
            raise file_io.InputError(f"{at}the text cannot be searched: {windows}")
        return windows

    def _highest(self, example, windows, results):
        """`Place`s of the highest start and end; under SQuAD 2.0 of the end given that start."""
        if self._threshold is None:
            places = []
            for name in ("start_log_prob", "end_log_prob"):
                best = max(windows, key=lambda w: results[w.unique_id][name].max())  # noqa: B023
                places.append(_place(example, best, int(results[best.unique_id][name].argmax())))
            return tuple(places)
        best = max(windows, key=lambda w: results[w.unique_id]["start_top_log_probs"][0])
        found = results[best.unique_id]
        return tuple(
            _place(example, best, int(found[f"{n}_top_index"][0])) for n in ("start", "end")
        )

    def _results(self, windows):
        """{unique id: scores} of the windows."""
        results = {}
        lengths = [np.sum(window.input_mask) for window in windows]
        for chosen in batching.batches_by_length(lengths, _BATCH):
            batch = [windows[place] for place in chosen]
            columns = {
                name: np.int32([getattr(window, name) for window in batch])
                for name in _WINDOW_INPUTS
            }
            columns = batching.trim_arrays(columns, _WINDOW_INPUTS, self._settings.widest_beam)
            rows = squad_answers.scores_of(self._infer(columns), columns["input_mask"])
            for place, window in enumerate(batch):
                results[window.unique_id] = {name: row[place] for name, row in rows.items()}
        return results

    def _reply(self, example, windows, results):
        settings = self._settings
        limits = (settings.n_best_size, settings.max_answer_length)
        if self._threshold is None:
            (answers,) = squad_answers.best_answers_v1([example], windows, results, *limits)
            return Reply(answers)
        beams = (settings.start_n_top, settings.end_n_top)
        (answers,) = squad_answers.best_answers_v2([example], windows, results, *limits, *beams)
        null_odds = squad_answers.find_null_odds([example], windows, results)
        return Reply(answers, null_odds[example.qas_id], self._threshold)


def _place(example, window, token):
    """`Place` of a token of a window."""
    piece, text = token - window.text_begin, ""
    if 0 <= piece < len(window.piece_start):
        text = example.paragraph_text[window.piece_start[piece] : window.piece_end[piece] + 1]
    return Place(window.unique_id, token, text)


def _gold(example, windows):
    """See `Explanation`."""
    found = squad_task.targets(squad_task.Questions([example], windows))
    whole = [w for w in windows if not found["is_impossible"][w.unique_id]]
    if not whole:
        return None

    def ends(w):
        return [found[f"{name}_positions"][w.unique_id] for name in ("start", "end")]

    best = max(whole, key=lambda w: min(ends(w)[0] - w.text_begin, w.text_end - ends(w)[1]))
    return tuple(_place(example, best, int(token)) for token in ends(best))

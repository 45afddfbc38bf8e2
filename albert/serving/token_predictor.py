"""Predicts the labels of words with a fine-tuned token classifier.

Letters in shapes: B batch, S sequence.
"""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import IO

import numpy as np

from albert.io import file_io, tables
from albert.model import batching, model_folder
from albert.serving import inference, requests
from albert.tasks import custom, entities, token_classification, word_files

_INPUTS = ("input_ids", "input_mask", "segment_ids")


class TokenPredictor:
    """A fine-tuned model, loaded from the folder of its training run or from a serving folder.

    Args:
      model_dir: the folder; a training run's best checkpoint is used, or else its last.
      runtime, threads: for serving folders; see `runtimes.load`.

    Attributes:
      labels: label names by id.
      columns: `word_files.Columns` of the training.
      max_seq_length: S of the training.
      tokenizer: `tokenization.FullTokenizer`.
      metric: see `predictors.Predictor`.

    Raises:
      file_io.InputError: the folder is missing, of another kind of model or without a checkpoint.
    """

    form = requests.WORDS
    input_forms = ("txt", "jsonl", "conll")
    output_forms = ("conll", "jsonl")
    batches_ahead = 64
    gives_numbers = False

    def __init__(
        self,
        model_dir: str | inference.FoundModel,
        runtime: str = "auto",
        threads: int | None = None,
    ) -> None:
        model = inference.find(model_dir, token_classification.KIND)
        folder = model.folder
        self.labels = custom.labels_of(folder)
        self.columns = word_files.Columns(**folder.setting("columns", word_files.are_columns))
        self.tokenizer = model_folder.load_tokenizer(folder.source, folder.config)
        self.max_seq_length = folder.length()
        self._marks = entities.mark_entities(self.labels)
        self.metric = "f1" if self._marks else "accuracy"
        self.infer = model.load(runtime, threads)

    # --- examples ---

    def read_lines(
        self, lines: Iterable[bytes], name: str, form: str, skip_empty: bool = False
    ) -> Iterator[word_files.Sentence]:
        """Yields a `word_files.Sentence` for each sentence of a file; labels are optional.

        Args:
          lines: iterable of bytes.
          name: name of the file, for messages.
          form: one of `input_forms`.
          skip_empty: whether to skip texts without words; the others keep their numbers.
        """
        return word_files.read_lines(lines, name, form, self.columns, skip_empty=skip_empty)

    def read(self, path: str, labeled: bool) -> tuple[list, list | None]:
        """Returns the sentences of a file and their labels; see `predictors.Predictor`."""
        sentences = list(word_files.read(path, "check_file", self.columns, labeled or None))
        if not sentences:
            raise file_io.InputError(f"{path}: there is no sentence")
        unknown = {name for s in sentences for name in s.labels or ()} - set(self.labels)
        if labeled and unknown:
            raise file_io.InputError(
                f"{path} has the label {min(unknown)!r}; this model has "
                f"{tables.name_list(self.labels)}"
            )
        gold = [sentence.labels for sentence in sentences] if labeled else None
        return [word_files.without_labels(sentence) for sentence in sentences], gold

    def of_request(self, fields: dict) -> list[str]:
        """Returns the example of a request."""
        return fields["words"]

    # --- predictions ---

    def predict(
        self,
        texts: Iterable[str | Sequence[str] | word_files.Sentence],
        batch_size: int = 32,
        batches_ahead: int = 1,
    ) -> Iterator[word_files.Prediction]:
        """Yields a `word_files.Prediction` for each text, in order.

        Args:
          texts: iterable of lists of words, of str, which are split at white space, or of
            `word_files.Sentence`.
          batch_size: B.
          batches_ahead: number of batches to read at a time, to batch sentences of similar length;
            memory use does not depend on the number of sentences.

        Raises:
          file_io.InputError: a text has no word.
        """
        sentences = map(_sentence, itertools.count(), texts)
        while window := list(itertools.islice(sentences, batch_size * batches_ahead)):
            yield from self._predict_window(window, batch_size)

    def batch_size(self, examples: list) -> int:
        """Returns the batch size for examples of requests that are computed together."""
        return len(examples)

    def to_json(self, result: word_files.Prediction) -> dict:
        """Returns a JSON-ready `word_files.Prediction`."""
        return word_files.to_dict(result, self._marks)

    def write(self, file: IO[str], form: str, results: Iterable[word_files.Prediction]) -> None:
        """Writes results in one of `output_forms`."""
        word_files.write_predictions(file, form, self.labels, results)

    # --- scores ---

    def answers(self, results: Iterable[word_files.Prediction]) -> list:
        """Returns the labels of all words, to compare and score."""
        return [label for result in results for label in result.labels]

    def score(self, gold: list, answers: list) -> float:
        """Returns the F1 of entities, or without entities the accuracy, in percentage points."""
        answers = iter(answers)
        answers = [list(itertools.islice(answers, len(labels))) for labels in gold]
        if self._marks:
            return 100 * entities.scores(gold, answers)["f1"]
        return 100 * entities.accuracy(gold, answers)

    def _predict_window(
        self, sentences: Sequence[word_files.Sentence], batch_size: int
    ) -> Iterator[word_files.Prediction]:
        sizes = (self.max_seq_length, self.tokenizer)
        parts = [
            part
            for number, sentence in enumerate(sentences)
            for part in token_classification.parts_of(
                word_files.without_labels(sentence), number, self.labels, *sizes
            )
        ]
        features = [token_classification.convert_part(part, *sizes) for part in parts]
        cut = {part.sentence for part in parts if part.num_lost}
        rows = {name: np.stack([row[name] for row in features]) for name in features[0]}
        shape = rows["input_ids"].shape
        rows |= {"predictions": np.zeros(shape, int), "probabilities": np.zeros(shape, np.float32)}
        columns = {name: rows[name].astype(np.int32) for name in _INPUTS}
        for indices, batch in batching.trimmed_batches(columns, batch_size):
            outputs = self.infer(batch)
            length = outputs["predictions"].shape[1]
            rows["predictions"][indices, :length] = outputs["predictions"]
            rows["probabilities"][indices, :length] = outputs["probabilities"].max(axis=-1)
        return token_classification.predictions(sentences, self.labels, rows, cut)


def _sentence(number: int, text: str | Sequence[str] | word_files.Sentence) -> word_files.Sentence:
    if isinstance(text, word_files.Sentence):
        return text
    place = f"text {number}"
    words = word_files.words_of(text, place) if isinstance(text, str) else tuple(text)
    return word_files.Sentence(str(number), words, None, place)

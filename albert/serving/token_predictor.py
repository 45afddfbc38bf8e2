"""Predicts the labels of words with a fine-tuned token classifier, from its training's folder.

Letters in shapes: B batch, S sequence.
"""

import dataclasses
import itertools

import numpy as np

from albert.model import batching, model_folder
from albert.serving import inference
from albert.tasks import custom, token_classification, word_files

_INPUTS = ("input_ids", "input_mask", "segment_ids")


def save_description(write, output_dir, files, config, source, max_seq_length, dropout_prob, head):
    """Makes the output folder of a token classifier's run usable by itself.

    Args:
      write: `model_folder.write`, or after a run without training `model_folder.write_if_absent`.
      output_dir: the folder.
      files: `token_classification.Files`.
      config: `encoder.AlbertConfig`.
      source: `sources.Source` with the vocabulary.
      max_seq_length: S of the training.
      dropout_prob: dropout of the encoder's output in training.
      head: `head_config.Head`.
    """
    settings = {
        "labels": list(files.labels),
        "max_seq_length": max_seq_length,
        "classifier_dropout_prob": dropout_prob,
        "columns": dataclasses.asdict(files.columns),
        **head.settings,
    }
    if write(output_dir, token_classification.KIND, config, source, settings):
        custom.save_labels(output_dir, files.labels)


class TokenPredictor:
    """A fine-tuned model, loaded from the folder of its training run, or a serving folder.

    Args:
      model_dir: the folder; of a training run the best checkpoint is used, else the last.
      runtime, threads: of serving folders; see `runtimes.load`.

    Attributes:
      labels: label names by id.
      columns: `word_files.Columns` of the training.
      tokenizer: `tokenization.FullTokenizer`.

    Raises:
      file_io.InputError: no such folder, or one of another kind of model or without a checkpoint.
    """

    def __init__(self, model_dir, runtime="auto", threads=None):
        found = inference.find(model_dir, token_classification.KIND)
        folder = found.folder
        self.labels = custom.labels_of(folder)
        self.columns = word_files.Columns(**folder.setting("columns", word_files.are_columns))
        self.tokenizer = model_folder.load_tokenizer(folder.source, folder.config)
        self._length = folder.length()
        self._infer = found.load(runtime, threads)

    def predict(self, texts, batch_size=32):
        """Yields a `word_files.Prediction` for each text, in order.

        Args:
          texts: iterable of lists of words, or of str, which are split at white space.
          batch_size: B; B texts are read ahead.

        Raises:
          file_io.InputError: a text has no word.
        """
        return self.predict_sentences(map(_sentence, itertools.count(), texts), batch_size, 1)

    def predict_sentences(self, sentences, batch_size=32, batches_ahead=64):
        """Yields a `word_files.Prediction` for each `word_files.Sentence`, in order.

        Args:
          sentences: iterable.
          batch_size: B.
          batches_ahead: that many batches are read at a time, so that sentences of similar length
            can be put together; memory does not depend on their number.
        """
        sentences = iter(sentences)
        while window := list(itertools.islice(sentences, batch_size * batches_ahead)):
            yield from self._predict_window(window, batch_size)

    def answer(self, forms, batch_size, file, lines, name, batches_ahead):
        """Writes the predictions for the sentences of a file, in order.

        Args:
          forms: form of `word_files.read_lines`, and of `word_files.write_predictions`.
          batch_size, batches_ahead: see `predict_sentences`.
          file: takes text.
          lines: iterable of bytes.
          name: what messages call them.
        """
        sentences = word_files.read_lines(lines, name, forms[0], self.columns)
        found = self.predict_sentences(sentences, batch_size, batches_ahead)
        word_files.write_predictions(file, forms[1], self.labels, found)

    def _predict_window(self, sentences, batch_size):
        sizes = (self._length, self.tokenizer)
        features = [
            token_classification.convert_part(part, *sizes)
            for number, sentence in enumerate(sentences)
            for part in token_classification.parts_of(
                word_files.without_labels(sentence), number, self.labels, *sizes
            )
        ]
        rows = {name: np.stack([row[name] for row in features]) for name in features[0]}
        shape = rows["input_ids"].shape
        rows |= {"predictions": np.zeros(shape, int), "probabilities": np.zeros(shape, np.float32)}
        for chosen in batching.batches_by_length(rows["input_mask"].sum(axis=1), batch_size):
            batch = {name: rows[name][chosen].astype(np.int32) for name in _INPUTS}
            outputs = self._infer(batching.trim_arrays(batch, _INPUTS))
            length = outputs["predictions"].shape[1]
            rows["predictions"][chosen, :length] = outputs["predictions"]
            rows["probabilities"][chosen, :length] = outputs["probabilities"].max(axis=-1)
        return token_classification.predictions(sentences, self.labels, rows)


def _sentence(number, text):
    place = f"text {number}"
    words = word_files.words_of(text, place) if isinstance(text, str) else tuple(text)
    return word_files.Sentence(str(number), words, None, place)

"""Answers plain texts with a fine-tuned classifier or regression model.

What the model needs beside its weights is in the folder that the training run wrote, see
`model_folder`. Letters in shapes: B batch, K labels, S sequence.
"""

import dataclasses
import itertools

import numpy as np
import tensorflow as tf

from albert import (
    batching,
    checkpoints,
    classifier_utils,
    custom_data,
    file_io,
    layers,
    model_folder,
    tables,
)

KIND = "classifier"
_INPUTS = ("input_ids", "input_mask", "segment_ids")


def save_description(write, output_dir, row, config, source, max_seq_length):
    """Makes the output folder of a run usable by itself.

    Args:
      write: `model_folder.write`, or after a run without training `model_folder.write_if_absent`.
      output_dir: the folder.
      row: `classifier_utils.GlueTask` or `custom_data.CustomTask`.
      config: `modeling.AlbertConfig`.
      source: `pretrained.Source` with the vocabulary.
      max_seq_length: S of the training.
    """
    settings = {
        "task_name": row.name,
        "labels": list(row.labels),
        "max_seq_length": max_seq_length,
        "columns": dataclasses.asdict(row.columns),
    }
    if write(output_dir, KIND, config, source, settings):
        custom_data.save_labels(output_dir, row.labels)


class TextPredictor:
    """A fine-tuned model, loaded from the folder of its training run.

    Args:
      model_dir: the folder; its best checkpoint is used, else its last.

    Attributes:
      labels: K label names by id; empty for regression.
      columns: `tables.Columns` of the training.
      max_seq_length: S of the training; longer texts are cut.
      tokenizer: `tokenization.FullTokenizer`.
      model: classifier or regression model of `heads`.

    Raises:
      file_io.InputError: no such folder, or one of another kind of model or without a checkpoint.
    """

    def __init__(self, model_dir):
        folder = model_folder.read(model_dir, KIND)
        self.columns = tables.Columns(**folder.settings["columns"])
        self._row = custom_data.CustomTask(
            {}, self.columns, tuple(folder.settings["labels"]), folder.settings["task_name"]
        )
        self.labels = self._row.labels
        self.tokenizer = model_folder.load_tokenizer(folder.source, folder.config)
        self.max_seq_length = folder.settings["max_seq_length"]
        task = classifier_utils.make_task(self._row)
        self.model = task.build_model(folder.config, layers.Compute(), 0)
        checkpoints.restore(self.model, folder.source.checkpoint, allow_new_heads=False)
        signature = {name: tf.TensorSpec([None, None], tf.int32) for name in _INPUTS}
        self._infer = tf.function(self._outputs, input_signature=[signature], autograph=False)

    def _outputs(self, features):
        outputs = self.model(features, training=False)
        return {name: outputs[name] for name in ("predictions", "probabilities")}

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
            classifier_utils.convert_example(
                example, self._row, self.max_seq_length, self.tokenizer
            )
            for example in examples
        ]
        columns = {name: np.stack([f[name] for f in features]).astype(np.int32) for name in _INPUTS}
        batches = batching.batches_by_length(columns["input_mask"].sum(axis=1), batch_size)
        found = []
        for chosen in batches:
            batch = {name: values[chosen] for name, values in columns.items()}
            outputs = self._infer(batching.trim_arrays(batch, _INPUTS))
            found.append({name: output.numpy() for name, output in outputs.items()})
        places = batching.places_in(batches)
        indices, probabilities = (
            np.concatenate([outputs[name] for outputs in found])[places]
            for name in ("predictions", "probabilities")
        )
        guids = [example.guid for example in examples]
        return tables.predictions(self.labels, guids, indices, probabilities)

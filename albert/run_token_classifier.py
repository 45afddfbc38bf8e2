r"""Fine-tunes ALBERT to label words (named entities), evaluates it, predicts and exports.

Example:

    albert run_token_classifier --train_file=train.conll --validation_file=dev.conll \
        --output_dir=out/names --init_checkpoint=albert_base_v2 --do_train --do_eval
"""

import dataclasses
import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from absl import flags

from albert.cli import (
    app,
    fine_tuning,
    fine_tuning_settings,
    model_settings,
    options,
    path_flags,
    training,
)
from albert.io import file_io
from albert.model import model_folder
from albert.tasks import class_weights, custom, example_data, token_classification, word_files
from albert.training import contracts, subsets

if TYPE_CHECKING:
    from albert.training.engine import Engine


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(fine_tuning_settings.ClassifierSettings):
    """Settings of the command."""

    train_file: str | None = options.flag(
        None, "Sentences to train on: .jsonl, else CoNLL's columns.", path=path_flags.INPUT
    )
    validation_file: str | None = options.flag(
        None, "Sentences to evaluate on.", path=path_flags.INPUT
    )
    test_file: str | None = options.flag(
        None, "Sentences to predict, with or without labels.", path=path_flags.INPUT
    )
    words_column: str | None = options.flag(
        None, "Column of the words: 1 is the first; for jsonl a key, words."
    )
    label_column: str | None = options.flag(
        None, "Column of the labels: -1 is the last; for jsonl a key, labels."
    )
    do_predict: bool = options.flag(False, "Predict the labels of --test_file.")
    max_seq_length: int = options.count(
        512, "Longest input in tokens; longer sentences are cut into parts."
    )
    train_batch_size: int = options.count(32, "Sentences per step, over all devices.")
    eval_batch_size: int = options.count(8, "Sentences per evaluation step, over all devices.")
    predict_batch_size: int = options.count(8, "Sentences per prediction step, over all devices.")
    classifier_dropout_prob: float = options.flag(
        0.1, "Dropout of the encoder's output.", check=options.fraction
    )

    def described_values(self, description: Mapping[str, Any]) -> dict[str, Any]:
        values = super().described_values(description)
        columns = description.get("columns")
        if word_files.are_columns(columns):
            path = self.validation_file or self.test_file or ""
            fitting = word_files.Columns(**columns).fitting(word_files.format_of(path))
            found = {"words_column": fitting.words, "label_column": fitting.label}
            values |= {name: value for name, value in found.items() if value is not None}
        return values


def define_flags(flag_values: flags.FlagValues) -> None:
    options.define(Settings, flag_values)


def find_files(settings: Settings, checkpoint: str | None) -> token_classification.Files:
    """Returns the files of the flags and their labels.

    `checkpoint` is the prefix of the one to start from; None: there is none.
    """
    paths = {
        "train": settings.train_file,
        "dev": settings.validation_file,
        "test": settings.test_file,
    }
    stages = {"train": settings.do_train, "dev": settings.do_eval, "test": settings.do_predict}
    custom.check_splits(paths, [split for split, do in stages.items() if do])
    files = {split: path for split, path in paths.items() if path}
    columns = word_files.Columns(settings.words_column, settings.label_column)
    folder = settings.described_folder
    checkpoint = None if settings.head_layer.new_head else checkpoint
    labels = token_classification.find_labels(folder, files, columns, checkpoint)
    return token_classification.Files(files, columns, labels)


def count_inputs(settings: Settings) -> int:
    """Returns the number of sentences to train on, of long ones that of their parts."""
    if not settings.train_file:
        raise file_io.InputError("--train_file must be given")
    columns = word_files.Columns(settings.words_column, settings.label_column)
    sentences = [*word_files.read(settings.train_file, "train_file", columns, False)]
    length = settings.max_seq_length
    # A word has a piece for each byte, and one for its start, at most.
    longer = [s for s in sentences if sum(len(w.encode()) + 1 for w in s.words) > length - 2]
    if not longer:
        return len(sentences)
    kind = token_classification.KIND
    source = settings.model.find_for_run(True, settings.output_dir, kind)
    tokenizer = model_folder.load_tokenizer(source, training.read_config(settings, source))
    parts = (token_classification.parts_of(s, 0, (), length, tokenizer) for s in longer)
    return len(sentences) - len(longer) + sum(1 for some in parts for _ in some)


def read_labels(settings: Settings, files: token_classification.Files) -> Iterator[str]:
    """Yields the labels of the words of the training data that are used."""
    fraction, seed = settings.fractions.train_fraction, settings.loop.seed
    sentences = list(files.sentences("train"))
    for index in subsets.choose_indices(len(sentences), fraction, seed):
        yield from sentences[index].labels or ()


@dataclasses.dataclass(frozen=True)
class TokenClassifier(fine_tuning.Command):
    """The command for labels of words."""

    settings: Settings

    kind = token_classification.KIND
    best_metric = "f1"
    recipe = "recipes/token_classification.flags"

    def data(self, files: token_classification.Files, inputs: fine_tuning.Inputs) -> contracts.Data:
        names = {"train": "tokens_train", "dev": "tokens_eval", "test": "predict"}
        folder, length = self.settings.output_dir, self.settings.max_seq_length
        paths = {split: os.path.join(folder, f"{name}.tf_record") for split, name in names.items()}
        text = model_settings.text_settings(length, inputs.source)
        cache = example_data.FeatureCache(paths, text, inputs.strategy)
        return token_classification.TokenData(
            cache=cache, sentence_files=files, tokenizer=inputs.tokenizer, max_seq_length=length
        )

    def prepare(self, inputs: fine_tuning.Inputs) -> fine_tuning.Prepared:
        settings, head = self.settings, inputs.head
        fine_tuning.check_text_export(settings, inputs.tokenizer)
        files = find_files(settings, inputs.source.checkpoint)
        length, dropout_prob = settings.max_seq_length, settings.classifier_dropout_prob
        labels, train_file = files.labels, settings.train_file or ""
        words = read_labels(settings, files)
        weights = fine_tuning.find_class_weights(
            settings, lambda source: class_weights.of_examples(source, labels, words, train_file)
        )
        description = custom.label_settings(labels, files.columns, length, dropout_prob, head)
        return fine_tuning.Prepared(
            token_classification.make_task(
                labels, length, dropout_prob, head, list(weights.values())
            ),
            self.data(files, inputs),
            {**description, **class_weights.settings(weights)},
            settings.train_step,
            settings.warmup_step,
            settings.do_eval,
        )

    def export(
        self,
        export_dir: str,
        inputs: fine_tuning.Inputs,
        prepared: fine_tuning.Prepared,
        engine: "Engine",
    ) -> None:
        from albert.export import saved_model_export

        settings = self.settings
        model = fine_tuning.model_to_export(settings, inputs, prepared.task, engine)
        if not model:
            return
        saved_model_export.export_ids(model, export_dir)
        if settings.export_text:
            labels = prepared.description["labels"]
            server = saved_model_export.WordServer(
                model, inputs.tokenizer, settings.max_seq_length, labels
            )
            saved_model_export.export_text(server, export_dir)


def main(values: flags.FlagValues) -> None:
    settings = fine_tuning_settings.read(Settings, values)
    settings.check()
    settings = settings.with_steps(lambda: count_inputs(settings), is_own_data=True)
    fine_tuning.run(TokenClassifier(settings), values, "run_token_classifier")


if __name__ == "__main__":
    app.run(main, define_flags)

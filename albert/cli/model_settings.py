"""Settings of the model that a command starts from or uses, and the search for its files."""

import dataclasses
import os
from typing import TYPE_CHECKING, Any, cast

from albert.cli import options, path_flags, text_flags
from albert.io import file_io
from albert.model import configuration, model_folder, published, sources
from albert.text import text_rules

if TYPE_CHECKING:
    from albert.serving import inference
    from albert.tasks import model_labels


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelFiles(text_flags.TextFlags):
    """Flags for model, weights and tokenizer."""

    section = options.MODEL

    albert_config_file: str | None = options.flag(
        None,
        "JSON file of the model's sizes; by default the one next to --init_checkpoint or in the "
        "hub module.",
        path=path_flags.INPUT,
    )
    init_checkpoint: str | None = options.flag(
        None,
        "Weights to start from: the name of a published model, such as albert_base_v2; a "
        "checkpoint prefix, its .index or .data file, a folder, a Hugging Face folder or its "
        ".safetensors file; a .tar.gz file or its URL.",
        path=path_flags.MODEL,
    )
    albert_hub_module_handle: str | None = options.flag(
        None,
        "Hub module to start from: a local folder, a .tar.gz file or a URL. Brings configuration "
        "and vocabulary.",
        path=path_flags.FOLDER,
    )
    tfhub_cache_dir: str | None = options.flag(
        None,
        "Folder for models that are fetched or unpacked; by default TFHUB_CACHE_DIR of the "
        "environment, else ~/.cache/albert (hub modules of a URL: tensorflow_hub's own).",
        allow_override=True,
        path=path_flags.FOLDER,  # tensorflow_hub also defines it, once it is imported.
    )
    vocab_file: str | None = options.flag(
        None,
        "WordPiece vocabulary, for models without SentencePiece; from_tf_hub for that of "
        "--albert_hub_module_handle.",
        path=path_flags.INPUT,
    )
    spm_model_file: str | None = options.flag(
        None,
        "SentencePiece model; by default the one next to the checkpoint; from_tf_hub for that of "
        "--albert_hub_module_handle.",
        path=path_flags.INPUT,
    )

    @property
    def names_weights(self) -> bool:
        """Whether a flag names weights to start from."""
        return bool(self.init_checkpoint or self.albert_hub_module_handle)

    def set_cache_dir(self) -> None:
        """Sets the folder for models that are fetched or unpacked, if a flag names one."""
        if self.tfhub_cache_dir:
            published.set_cache_dir(self.tfhub_cache_dir)

    def find(
        self, needs_vocabulary: bool = True, teacher: sources.Source | None = None
    ) -> sources.Source:
        """Returns the model of these flags.

        Args:
          needs_vocabulary: whether a missing vocabulary is an error.
          teacher: its vocabulary is used if neither the flags nor the initial model provide one.
        """
        if self.init_checkpoint and self.albert_hub_module_handle:
            raise file_io.InputError(
                "init_checkpoint and albert_hub_module_handle both give weights; give only one"
            )
        self.set_cache_dir()
        # The model decides settings that the user has not given.
        rules = self.text_rules()
        vocabulary = {name: getattr(self, name) for name in ("spm_model_file", "vocab_file")}
        models = (self.init_checkpoint, self.albert_hub_module_handle)
        if teacher and not any((*models, *vocabulary.values())):
            vocabulary = {name: getattr(teacher, name) for name in vocabulary}
            rules = dataclasses.asdict(teacher.rules) | rules
        given = sources.Given(self.albert_config_file, **vocabulary, rules=rules)
        return sources.locate(given, *models, needs_vocabulary)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelToUse(ModelFiles):
    """Files of a model that a command fine-tunes or uses."""

    from_scratch: bool = options.flag(
        False, "Start from random weights; otherwise fine-tuning needs a model to start from."
    )

    def find(
        self, needs_vocabulary: bool = True, teacher: sources.Source | None = None
    ) -> sources.Source:
        if self.names_weights and self.from_scratch and "from_scratch" in self.given:
            raise file_io.InputError(
                "from_scratch contradicts init_checkpoint and albert_hub_module_handle"
            )
        return super().find(needs_vocabulary, teacher)

    def find_for_run(
        self, do_train: bool, folder: str, kind: str, teacher: sources.Source | None = None
    ) -> sources.Source:
        """Returns `find()`, or the files in a trained model's folder without training and a model.

        Args:
          folder: that of the model that is used without training.
          kind: kind of its models, such as "classifier".
          teacher: see `ModelFiles.find`.
        """
        from albert.tasks import kinds

        if do_train:
            return self.find(teacher=teacher)
        if self.names_weights or self.albert_config_file:
            source = self.find(teacher=teacher)
            if file_io.exists(os.path.join(folder, sources.DESCRIPTION_NAME)):
                trained = model_folder.read(folder, kind, with_weights=False).source
                path, name = cast(str, source.vocabulary), "the vocabulary"
                named = "these flags and those that name an initial model"
                _check_same_texts(trained, folder, name, path, path, source.rules, named)
            return source
        sources.check_no_hub_word(None, self.spm_model_file, self.vocab_file)
        trained = kinds.read_folder(folder, kind).source
        self._check_flags_of_texts(trained, folder)
        return trained

    def _check_flags_of_texts(self, trained: sources.Source, folder: str) -> None:
        """Rejects flags by which texts would become other pieces than those of a trained model."""
        self.set_cache_dir()
        name = "spm_model_file" if self.spm_model_file else "vocab_file"
        path, found = getattr(self, name), cast(str, trained.vocabulary)
        if path:
            is_spm = name == "spm_model_file"
            found = published.vocabulary(
                path, published.SPM_PATTERN if is_spm else published.VOCAB_PATTERN
            )
            if not file_io.exists(found):
                raise file_io.InputError(f"{name}: the file {path} does not exist")
        rules = trained.rules.changed(self.text_rules())
        _check_same_texts(trained, folder, name, path or found, found, rules)

    def find_described_head(self, do_train: bool, folder: str) -> "model_labels.ModelHead | None":
        """Returns the head of the model that a run starts from or uses; None if it is unknown.

        Without training this is the model of `folder`, if it describes one.
        """
        from albert.tasks import model_labels

        head = None if do_train else model_labels.read_folder(folder)
        is_contradicted = self.albert_hub_module_handle or self.from_scratch  # `find` raises
        if head or not self.init_checkpoint or is_contradicted:
            return head
        self.set_cache_dir()
        return model_labels.read(sources.find_checkpoint(self.init_checkpoint))


def _check_same_texts(
    trained: sources.Source,
    folder: str,
    name: str,
    path: str,
    found: str,
    rules: text_rules.TextRules,
    flags: str = "these flags",
) -> None:
    """Rejects a vocabulary or rules by which texts would become other pieces than in training.

    Args:
      trained, folder: the trained model and its folder.
      name, path: setting of the vocabulary and its value, for messages.
      found, rules: file of the vocabulary, and rules, of the run.
      flags: what to omit.
    """
    differing, there = [], cast(str, trained.vocabulary)
    if file_io.exists(there) and not model_folder.are_same_vocabularies(found, there):
        differing.append(f"{name} is {path} (there {there}, with other pieces)")
    if text := rules.differences(trained.rules, trained.spm_model_file is not None):
        differing.append(text)
    if differing:
        raise file_io.InputError(
            f"{folder} holds a trained model, which reads texts in its own way: "
            f"{', '.join(differing)}; omit {flags}, or train in another output_dir"
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Inference(options.Group):
    """Flags for the computation of a fine-tuned model."""

    section = options.DEVICES

    precision: str | None = options.flag(
        None,
        "Type of products and activations; by default float32, or that of an exported model.",
        parser=options.PrecisionParser(["float32", "bfloat16"]),
    )


def find_trained(model_dir: str, settings: Inference, *kinds: str) -> "inference.FoundModel":
    """Returns the model of a folder, which must be one of `kinds`, such as "classifier", if any."""
    from albert.serving import inference

    model = inference.find(model_dir, *kinds)
    return model.in_precision(settings.precision) if settings.precision else model


def text_settings(max_seq_length: int, source: sources.Source) -> dict[str, Any]:
    """Returns {name: JSON value} of the settings that the features of a text depend on."""
    return {
        "max_seq_length": max_seq_length,
        **source.rules.to_json(),
        "vocabulary_sha256": file_io.sha256(cast(str, source.vocabulary)),
    }


def check_seq_length(max_seq_length: int, config: configuration.AlbertConfig) -> None:
    """Rejects a maximum length, in tokens, above the position table of a model."""
    if max_seq_length > config.max_position_embeddings:
        raise file_io.InputError(
            f"--max_seq_length={max_seq_length} is above the model's "
            f"max_position_embeddings of {config.max_position_embeddings}"
        )

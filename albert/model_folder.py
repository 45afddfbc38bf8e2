"""What a fine-tuned model's folder holds beside its checkpoints, so that it can be used alone.

Training writes ``albert_config.json``, a copy of the vocabulary and ``model.json``: the kind of
model and the settings that inputs for it depend on. Programs that use the model need only the
folder's name.
"""

import dataclasses
import os

from albert import checkpoints, file_io, modeling, pretrained, tokenization

VERSION = 1


@dataclasses.dataclass(frozen=True)
class ModelFolder:
    """A fine-tuned model.

    Attributes:
      path: the folder.
      kind: what the model does, such as "classifier" or "squad_v2".
      config: `modeling.AlbertConfig`.
      source: `pretrained.Source` of its files; `checkpoint` is the prefix of its best checkpoint,
        else of its last.
      settings: JSON-ready dict, the one given to `write`.
    """

    path: str
    kind: str
    config: modeling.AlbertConfig
    source: pretrained.Source
    settings: dict


def load_tokenizer(source, config):
    """`tokenization.FullTokenizer` of a `pretrained.Source`, checked against the configuration.

    Raises:
      file_io.InputError: no vocabulary, one of the wrong kind, or one that does not fit.
    """
    tokenizer = tokenization.FullTokenizer(
        vocab_file=source.vocab_file,
        do_lower_case=source.do_lower_case,
        spm_model_file=source.spm_model_file,
    )
    tokenization.check_vocab_size(tokenizer, config.vocab_size)
    return tokenizer


def write(path, kind, config, source, settings):
    """Makes a folder complete, before its first checkpoint.

    Args:
      path: output folder of the training; made if it is not there.
      kind: what the model does; `read` checks it.
      config: `modeling.AlbertConfig`.
      source: `pretrained.Source` with the vocabulary to copy.
      settings: JSON-ready dict of what the use of the model depends on, such as the longest input
        and the names of the labels.
    """
    file_io.make_dirs(path)
    file_io.write_text(os.path.join(path, pretrained.CONFIG_NAME), config.to_json_string())
    spm_model_file = vocab_file = None
    if source.spm_model_file:
        spm_model_file = os.path.basename(source.spm_model_file)
        _copy(source.spm_model_file, os.path.join(path, spm_model_file))
    else:
        vocab_file = pretrained.VOCAB_NAME
        _copy(source.vocab_file, os.path.join(path, vocab_file))
    description = {
        "version": VERSION,
        "kind": kind,
        "spm_model_file": spm_model_file,
        "vocab_file": vocab_file,
        "do_lower_case": source.do_lower_case,
        "settings": settings,
    }
    # Written last: a folder with a description is whole.
    file_io.write_json(os.path.join(path, pretrained.DESCRIPTION_NAME), description)


def _copy(source, target):
    if not (file_io.exists(target) and file_io.sha256(source) == file_io.sha256(target)):
        file_io.copy(source, target)


def read(path, *kinds):
    """Reads what `write` wrote.

    Args:
      path: folder of a fine-tuned model.
      kinds: the kinds that the caller can use; none means any.

    Returns:
      `ModelFolder`.

    Raises:
      file_io.InputError: no such folder, no description in it, a model of another kind, or the
        checkpoint is missing; says what to do.
    """
    if not file_io.is_dir(path):
        raise file_io.InputError(f"there is no model folder {path}")
    name = os.path.join(path, pretrained.DESCRIPTION_NAME)
    if not file_io.exists(name):
        raise file_io.InputError(
            f"{path} has no {pretrained.DESCRIPTION_NAME}: expected the --output_dir of a "
            "fine-tuning run. The run that made it may be of an older version: the same command "
            "again adds the file"
        )
    found = file_io.read_json(name, "model description")
    if not isinstance(found, dict) or found.get("version") != VERSION:
        raise file_io.InputError(f"{name} is not a model description of version {VERSION}")
    if kinds and found["kind"] not in kinds:
        raise file_io.InputError(
            f"{path} holds a model of kind {found['kind']}; expected {' or '.join(kinds)}"
        )
    inside = lambda entry: found[entry] and os.path.join(path, found[entry])  # noqa: E731
    config_file = os.path.join(path, pretrained.CONFIG_NAME)
    source = pretrained.Source(
        config_file=config_file,
        checkpoint=checkpoints.resolve(path),
        spm_model_file=inside("spm_model_file"),
        vocab_file=inside("vocab_file"),
        do_lower_case=found["do_lower_case"],
    )
    config = modeling.AlbertConfig.from_json_file(config_file)
    return ModelFolder(path, found["kind"], config, source, found["settings"])

"""Reads how the tokenizer of a Hugging Face folder makes pieces of texts.

What the toolkit cannot do is refused by the name of its entry, as other ids would be made in
silence. The vocabulary itself is read by `text.tokenization`.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from typing import Any

from absl import logging

from albert.io import file_io, locks
from albert.model import huggingface, huggingface_entries, pooling, published
from albert.text import library_ids, sentencepiece_json, text_rules, tokenization, wordpiece

CONFIG_NAME, FAST_NAME = huggingface.TOKENIZER_CONFIG_NAME, "tokenizer.json"
_ADDED_NAME, _VOCAB_NAME = "added_tokens.json", "vocab.txt"
_MAP_NAME = "special_tokens_map.json"
SPM_NAME = "spiece.model"  # of the model that is made of a tokenizer.json
# Empty file of a model whose ids are those of the library, on the lines of this version.
_COMPARED = "compared_2"
FILES = frozenset((CONFIG_NAME, FAST_NAME, _ADDED_NAME, _MAP_NAME))
_CLASSES = (*huggingface_entries.BERT, *huggingface_entries.ALBERT, *huggingface_entries.GENERIC)
# What classes of other kinds make, to say it.
_OTHER_KINDS = {
    "a byte-level BPE": ("Roberta", "GPT2", "Bart", "Deberta", "Longformer", "LED"),
    "whose words come from MeCab, Sudachi or Juman++": ("BertJapanese",),
    "a SentencePiece with other special pieces": (
        *("XLMRoberta", "T5", "Camembert", "XLNet", "DebertaV2", "BigBird", "Reformer", "MBart"),
    ),
    "whose letters are bytes": ("ByT5", "Canine"),
}
# Entry of the configuration -> (entry of `text_rules.TextRules`, whether it means the opposite).
_RULES = {
    "do_lower_case": ("do_lower_case", False),
    "keep_accents": ("keep_accents", False),
    "strip_accents": ("keep_accents", True),
    "tokenize_chinese_chars": ("split_ideographs", False),
}
# Entries of BertNormalizer in tokenizer.json, in the same way.
_NORMALIZER_RULES = {
    "lowercase": ("do_lower_case", False),
    "strip_accents": ("keep_accents", True),
    "handle_chinese_chars": ("split_ideographs", False),
}
_DECODER = "added_tokens_decoder"  # entry with added tokens by id
# Entries with names of further special pieces.
_FURTHER = ("additional_special_tokens", "extra_special_tokens")


def read_rules(folder: str) -> dict[str, Any]:
    """Reads the rules of a folder's tokenizer: values of `text_rules.TextRules` by name.

    As in transformers the class says which file counts: for BertTokenizer
    ``tokenizer_config.json``, for the generic classes ``tokenizer.json``. Otherwise the first comes
    before the second. Entries that neither file has are missing.
    """
    config_path, fast_path = (os.path.join(folder, name) for name in (CONFIG_NAME, FAST_NAME))
    config, fast = _read(config_path), _read(fast_path)
    _check_class(config_path, config)
    name = config.get("tokenizer_class")
    normalizer = fast.get("normalizer")
    normalizer = normalizer if isinstance(normalizer, dict) else {}
    rules: dict[str, Any] = {}
    if normalizer.get("type") == "BertNormalizer":
        huggingface_entries.check_fixed(fast_path, normalizer)
        values = _values(fast_path, normalizer, _NORMALIZER_RULES)
        rules = {} if name in huggingface_entries.BERT else values
    elif _is_alone(folder) and sentencepiece_json.holds(fast_path, fast):
        rules = dict(sentencepiece_json.rules(fast_path, fast))
        if name in huggingface_entries.ALBERT:
            huggingface_entries.check_steps_of_albert(fast_path, rules, config_path, config)
    added = _added_tokens(folder)
    huggingface_entries.check_fixed(config_path, config, bool(added))
    if not (rules and name in huggingface_entries.GENERIC):
        rules |= _values(config_path, config, _RULES)
    pooling.check_lower_case(folder, rules.get("do_lower_case"))
    _check_vocab_file(folder, fast, steps_count=name in huggingface_entries.GENERIC)
    _check_inputs(folder, config, fast)
    rules |= _wordpiece_rules(folder, fast, name in huggingface_entries.GENERIC)
    extra = sorted(added, key=lambda name: added[name].get("id", -1))
    for name in extra:
        _check_found_as_written(folder, name, added[name], rules.get("do_lower_case") is not False)
    return rules | ({"extra_pieces": tuple(extra)} if extra else {})


def _check_inputs(folder: str, config: Mapping[str, Any], fast: Mapping[str, Any]) -> None:
    """Rejects special pieces, cuts and a last step that this package does not have.

    Args:
      config, fast: contents of ``tokenizer_config.json`` and ``tokenizer.json``.
    """
    config_path, fast_path = (os.path.join(folder, name) for name in (CONFIG_NAME, FAST_NAME))
    name, kind = config.get("tokenizer_class"), wordpiece.tokenizer_model_type(fast)
    for path, entries in _special_entries(folder, config):
        vocab = _wordpiece_vocab(folder, kind) if "<unk>" in str(entries.get("unk_token")) else None
        huggingface_entries.check_special(path, entries, vocab)
    if kind is None:
        return
    huggingface_entries.check_truncation(fast_path, fast, config)
    is_generic = name in huggingface_entries.GENERIC
    if is_generic and kind == "WordPiece":
        vocab = _wordpiece_vocab(folder, kind)
        huggingface_entries.check_special(f"{fast_path}: model", fast["model"], vocab)
    takes_step = is_generic or (kind != "WordPiece" and name not in huggingface_entries.BERT)
    # AlbertTokenizer has a step of its own where the file has none.
    if is_generic or (takes_step and fast.get("post_processor") is not None):
        with_segments = huggingface_entries.gives_segments(config_path, config)
        huggingface_entries.check_last_step(fast_path, fast, with_segments)


def _wordpiece_vocab(folder: str, kind: object) -> Mapping[str, int] | None:
    """Returns the WordPiece vocabulary of a folder; None if it has another.

    `kind` is the type of the model in ``tokenizer.json``.
    """
    path = os.path.join(folder, FAST_NAME if kind == "WordPiece" else _VOCAB_NAME)
    is_wordpiece = kind in ("WordPiece", None) and file_io.exists(path) and _is_alone(folder)
    return wordpiece.load_vocab(path, True) if is_wordpiece else None


def holds_wordpiece(path: str) -> bool:
    """Returns whether a ``tokenizer.json`` has the vocabulary of a WordPiece model.

    Raises:
      file_io.InputError: it has, but splits texts into words in another way than BERT.
    """
    content = _read(path)
    if wordpiece.tokenizer_model_type(content) != "WordPiece":
        return False
    if difference := _other_step(content):
        raise file_io.InputError(
            f"{path}: {difference}, with which a WordPiece vocabulary is read: give vocab_file (if "
            "this toolkit wrote the file, the vocab.txt that it wrote next to it)"
        )
    return True


def _other_step(fast: Mapping[str, Any]) -> str | None:
    """Names the first step of a ``tokenizer.json`` that is none of BERT's, and the expected one."""
    for name, only in (("normalizer", "BertNormalizer"), ("pre_tokenizer", "BertPreTokenizer")):
        part = fast.get(name)
        kind = part.get("type") if isinstance(part, dict) else None
        if kind != only:
            return f"the {name} is {kind!r}, expected {only}"
    return None


def _check_vocab_file(folder: str, fast: Mapping[str, Any], steps_count: bool) -> None:
    """Rejects a ``vocab.txt`` that is not the vocabulary that transformers reads.

    Args:
      fast: content of ``tokenizer.json``, which transformers reads first.
      steps_count: whether its steps count, so that they must be those of BERT.
    """
    path, fast_path = (os.path.join(folder, name) for name in (_VOCAB_NAME, FAST_NAME))
    kind = wordpiece.tokenizer_model_type(fast)
    if kind is None or not (file_io.exists(path) and _is_alone(folder)):
        return
    if kind != "WordPiece":
        raise file_io.InputError(
            f"{fast_path} holds a model of the type {kind!r}, but {path} is next to it: delete the "
            "one that is not the model's"
        )
    if steps_count and (difference := _other_step(fast)):
        raise file_io.InputError(
            f"{fast_path}: {difference}; this package only has the steps of BERT, so such a model "
            "cannot be used"
        )
    listed, theirs = (_named(wordpiece.load_vocab(p, True)) for p in (path, fast_path))
    if differing := listed.items() ^ theirs.items():
        name, _ = min(differing, key=lambda item: item[::-1])
        raise file_io.InputError(
            f"{path} is not the vocabulary of {fast_path}, which transformers reads: {name!r} has "
            f"the id {listed.get(name)} (there {theirs.get(name)}); delete the file that is not "
            "the model's"
        )


def _named(vocab: Mapping[str, int]) -> dict[str, int]:
    """Returns the pieces without those that each form of a vocabulary names differently."""
    return {
        piece: i for piece, i in vocab.items()
        if piece and piece == piece.rstrip() and not piece.startswith("[unused_line_")
    }  # fmt: skip


def sentencepiece_model(path: str) -> str | None:
    """Returns the SentencePiece model of the one in a ``tokenizer.json``; None if it has none.

    It is made once, in the folder of models that are fetched or unpacked, with a file of its rules.
    """
    fast = _read(path)
    if not sentencepiece_json.holds(path, fast):
        return None
    rules = text_rules.TextRules().changed(read_rules(os.path.dirname(path) or "."))
    key = json.dumps([file_io.sha256(path), rules.to_json()])
    name = f"tokenizer-{hashlib.sha256(key.encode()).hexdigest()[:16]}"
    folder = os.path.join(published.cache_dir(), name)
    file_io.make_dirs(published.cache_dir())
    with locks.locked(f"{folder}.lock"):
        if not file_io.exists(os.path.join(folder, text_rules.FILE_NAME)):
            content = sentencepiece_json.model_of(path, fast)
            with file_io.atomic_folder(folder, last=text_rules.FILE_NAME) as new:
                file_io.write_bytes(os.path.join(new, SPM_NAME), content)
                _check_same_ids(path, new, rules)
                file_io.write_json(os.path.join(new, text_rules.FILE_NAME), rules.to_json())
        elif not file_io.exists(os.path.join(folder, _COMPARED)):
            _check_same_ids(path, folder, rules)
    return os.path.join(folder, SPM_NAME)


def _check_same_ids(path: str, folder: str, rules: text_rules.TextRules) -> None:
    """Rejects the model in a folder, made of the file at a path, if the library gives other ids.

    Marks the folder if the ids are the same. Without the library, a warning says each time that
    they were not compared.
    """
    try:
        made = os.path.join(folder, SPM_NAME)
        tokenizer = tokenization.FullTokenizer(spm_model_file=made, rules=rules)
        library_ids.compare(file_io.read_text(path, "Hugging Face tokenizer", None), tokenizer)
    except ImportError as error:
        logging.warning(
            "The ids of %s were not compared, which needs the package tokenizers (%s)", path, error
        )
    except (library_ids.Difference, file_io.InputError) as error:
        raise file_io.InputError(
            f"{path} cannot be used as a SentencePiece model, which gives {error}: give "
            "spm_model_file"
        ) from error
    else:
        file_io.write_text(os.path.join(folder, _COMPARED), "")


def _is_alone(folder: str) -> bool:
    """Returns whether a folder has no SentencePiece model besides ``tokenizer.json``."""
    return not any(name.endswith(".model") for name in file_io.listdir(folder))


def check_ids(folder: str, rules: text_rules.TextRules, vocabularies: list[str]) -> None:
    """Compares the ids of added tokens with those that the tokenizer gives them.

    `rules` are those of `read_rules`. Without exactly one path of a vocabulary nothing is compared.
    """
    if len(vocabularies) != 1:
        return
    tokenizer = tokenization.load(vocabularies[0], rules)
    for name, token in _added_tokens(folder).items():
        if "id" not in token and tokenizer.vocab[name] >= tokenizer.base_size:
            raise file_io.InputError(
                f"{folder}: the special token {name!r} is not in the vocabulary and has no id; "
                f"expected one in {_ADDED_NAME}, or in {_DECODER} of {CONFIG_NAME}"
            )
        if tokenizer.vocab[name] != token.get("id", tokenizer.vocab[name]):
            raise file_io.InputError(
                f"{folder}: the added token {name!r} has the id {token['id']}; expected "
                f"{tokenizer.vocab[name]}, as added tokens follow the vocabulary without gaps"
            )


def _read(path: str) -> dict[str, Any]:
    return file_io.read_json(path, "Hugging Face tokenizer", dict) if file_io.exists(path) else {}


def _check_class(path: str, config: Mapping[str, Any]) -> None:
    name = config.get("tokenizer_class")
    if name is None or name in _CLASSES:
        return
    base = str(name).removesuffix("Fast").removesuffix("Tokenizer")
    kind = next((kind for kind, bases in _OTHER_KINDS.items() if base in bases), None)
    raise file_io.InputError(
        f"{path}: tokenizer_class is {name!r}, {kind or 'which makes other pieces'}; this package "
        f"has the WordPiece of BERT and the SentencePiece of ALBERT ({', '.join(_CLASSES)}), so "
        "such a model cannot be used"
    )


def _values(
    path: str, entries: Mapping[str, Any], names: Mapping[str, tuple[str, bool]]
) -> dict[str, bool]:
    """Returns the values of rules in some entries."""
    own_rules = {}
    for name, (rule, is_opposite) in names.items():
        value = entries.get(name)
        if value not in (True, False, None):
            raise file_io.InputError(f"{path}: {name} is {value!r}, expected true or false")
        if value is not None:
            own_rules[rule] = value != is_opposite
    return own_rules


def _wordpiece_rules(folder: str, fast: Mapping[str, Any], model_counts: bool) -> dict[str, Any]:
    """Returns the rules of transformers alone in a folder with WordPiece, else {}.

    Args:
      fast: content of ``tokenizer.json``.
      model_counts: whether all entries of its model count, as for the generic classes; else its
        vocabulary alone.
    """
    kind = wordpiece.tokenizer_model_type(fast)
    if kind != "WordPiece":
        without = file_io.exists(os.path.join(folder, _VOCAB_NAME)) and _is_alone(folder)
        return text_rules.OF_TRANSFORMERS if without and kind is None else {}
    longest = text_rules.OF_TRANSFORMERS["longest_word"]
    if model_counts:
        longest = fast["model"].get("max_input_chars_per_word", longest)
    if type(longest) is not int or longest < 1:
        raise file_io.InputError(
            f"{os.path.join(folder, FAST_NAME)}: max_input_chars_per_word is {longest!r}, expected "
            "a number of characters"
        )
    return text_rules.OF_TRANSFORMERS | {"longest_word": longest}


def _special_entries(folder: str, config: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    """Returns the paths and contents of the files that name a folder's special pieces.

    Args:
      config: content of ``tokenizer_config.json``; where it has the added tokens by id,
        transformers reads no other file.
    """
    path = os.path.join(folder, _MAP_NAME)
    others = [] if _DECODER in config else [(path, _read(path))]
    return [*others, (os.path.join(folder, CONFIG_NAME), config)]


def _named_tokens(folder: str, config: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Returns {content: token} of the further special pieces that are named, without ids."""
    named = {}
    for path, entries in _special_entries(folder, config):
        for entry in _FURTHER:
            listed = entries.get(entry) or []
            listed = list(listed.values()) if isinstance(listed, dict) else listed
            for token in listed if isinstance(listed, list) else [listed]:
                token = {"content": token} if isinstance(token, str) else token
                name = _content(path, token)
                named[name] = {"content": name, "normalized": False, **token}
                named[name].pop("id", None)
    return named


def _content(path: str, token: object) -> str:
    content = token.get("content") if isinstance(token, dict) else None
    if not (isinstance(content, str) and content):
        raise file_io.InputError(f"{path}: expected an added token, found {token!r}")
    return content


def _added_tokens(folder: str) -> dict[str, dict[str, Any]]:
    """Returns {content: token} of a folder's added tokens that are none of the special pieces.

    Those that are only named have no id.
    """
    paths = [os.path.join(folder, name) for name in (_ADDED_NAME, CONFIG_NAME, FAST_NAME)]
    first, config, fast = map(_read, paths)
    tokens = [(paths[0], {"content": name, "id": i}) for name, i in first.items()]
    decoder = config.get(_DECODER)
    for i, token in (decoder if isinstance(decoder, dict) else {}).items():
        number = int(i) if i.isdecimal() else None
        tokens.append((paths[1], {**token, "id": number} if isinstance(token, dict) else token))
    listed = fast.get("added_tokens")
    tokens += [(paths[2], token) for token in (listed if isinstance(listed, list) else [])]
    added = _named_tokens(folder, config)
    for path, token in tokens:
        name = _content(path, token)
        if not isinstance(token.get("id"), int):
            raise file_io.InputError(f"{path}: expected an added token, found {token!r}")
        before = added.get(name, {})
        if name not in huggingface_entries.SPECIAL and before.get("id", token["id"]) != token["id"]:
            raise file_io.InputError(
                f"{path}: the added token {name!r} has the ids {before['id']} and {token['id']}"
            )
        added[name] = {**before, **token}
    return {name: token for name, token in added.items() if name not in huggingface_entries.SPECIAL}


def _check_found_as_written(folder: str, name: str, token: Mapping[str, Any], lower: bool) -> None:
    """Rejects an added token that transformers finds in other texts than the one it is."""
    unusual = [key for key in ("lstrip", "rstrip", "single_word") if token.get(key)]
    if token.get("normalized", True) and lower and any(map(str.isalpha, name)):
        unusual.append("normalized, which ignores case")
    if unusual:
        raise file_io.InputError(
            f"{folder}: the added token {name!r} is {' and '.join(unusual)}; only tokens that are "
            "found exactly as written are supported"
        )

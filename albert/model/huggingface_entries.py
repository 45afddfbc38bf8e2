"""Entries of the tokenizer in a Hugging Face folder that change ids or inputs, and their values.

Entries that change ids or inputs are in the tables here or are read by `huggingface_tokenizer`; all
others change nothing that this package computes, and are skipped.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from albert.io import file_io

# Classes that make pieces as this package does.
BERT = ("BertTokenizer", "BertTokenizerFast")  # take nothing but the vocabulary of tokenizer.json
ALBERT = ("AlbertTokenizer", "AlbertTokenizerFast")  # take its vocabulary and last step
GENERIC = ("PreTrainedTokenizerFast", "TokenizersBackend")  # take all of tokenizer.json
# Entry -> the only value that this package has.
_FIXED = {
    "do_basic_tokenize": True,
    "remove_space": True,
    "clean_text": True,
    "wordpieces_prefix": "##",
    "word_tokenizer_type": "basic",
    "subword_tokenizer_type": "wordpiece",
    "do_word_tokenize": True,
    "do_subword_tokenize": True,
    "truncation_side": "right",
}
# The same, for some classes or folders alone.
_FIXED_OF_ALBERT = {"add_prefix_space": True}
_FIXED_WITH_EXTRA_PIECES = {"split_special_tokens": False}
# Entry -> names of the special piece that the tokenizer looks for.
_SPECIAL = {
    "cls_token": ("[CLS]",),
    "sep_token": ("[SEP]",),
    "mask_token": ("[MASK]",),
    "pad_token": ("<pad>", "[PAD]"),
    "unk_token": ("<unk>", "[UNK]"),
}
SPECIAL = frozenset(name for names in _SPECIAL.values() for name in names)
_NAMES, _SEGMENTS = "model_input_names", "token_type_ids"
_Layout = tuple[tuple[tuple[str, int], ...], ...]  # of one text and of two
_Json = Mapping[str, Any]
# The inputs that the step after the model makes: (piece or text, segment).
_SINGLE = (("[CLS]", 0), ("A", 0), ("[SEP]", 0))
_PAIR = (*_SINGLE, ("B", 1), ("[SEP]", 1))
_BOTH: _Layout = (_SINGLE, _PAIR)


def gives_segments(path: str, config: _Json) -> bool:
    """Returns whether transformers gives a model the segments of two texts; else all are 0.

    Without an entry the class says it: in version 5, which writes ``backend``, only that of BERT
    gives them, in earlier versions all do.

    Args:
      path: of `config`, the content of ``tokenizer_config.json``, for messages.
    """
    names, kind = config.get(_NAMES), config.get("tokenizer_class")
    if names is None:
        is_new = "backend" in config or kind == "TokenizersBackend"
        return kind in (None, *BERT) or not is_new
    if not isinstance(names, list):
        raise file_io.InputError(f"{path}: {_NAMES} is {names!r}, expected a list of names")
    return _SEGMENTS in names


def check_fixed(path: str, entries: _Json, has_extra_pieces: bool = False) -> None:
    """Rejects values that this package does not have.

    Args:
      path: of the entries, for messages.
      has_extra_pieces: whether the folder has pieces beyond its vocabulary.
    """
    is_albert = entries.get("tokenizer_class") in ALBERT
    fixed = _FIXED | (_FIXED_OF_ALBERT if is_albert else {})
    fixed |= _FIXED_WITH_EXTRA_PIECES if has_extra_pieces else {}
    for name, only in fixed.items():
        if entries.get(name, only) not in (only, None):
            raise file_io.InputError(
                f"{path}: {name} is {entries[name]!r}; this package only has {only!r}, with which "
                "the pieces of texts would be others than the model's"
            )
    never_split = entries.get("never_split")
    words = never_split if isinstance(never_split, (list, tuple)) else [never_split]
    if never_split and not set(map(str, words)) <= SPECIAL:
        raise file_io.InputError(f"{path}: never_split is {never_split!r}, which is not supported")


def check_special(path: str, config: _Json, vocab: Mapping[str, int] | None = None) -> None:
    """Rejects other names of the special pieces than those that the tokenizer looks for.

    Args:
      vocab: of a WordPiece model, where [UNK] comes before <unk>.
    """
    for name, known in _SPECIAL.items():
        token = config.get(name)
        token = token.get("content") if isinstance(token, dict) else token
        if name == "unk_token" and "[UNK]" in (vocab or ()):
            known = ("[UNK]",)
        if token is not None and token not in list(known):  # a list: it may be unhashable
            raise file_io.InputError(
                f"{path}: {name} is {token!r}; expected {' or '.join(known)}, with which this "
                "package makes pieces"
            )


def check_truncation(path: str, fast: _Json, config: _Json) -> None:
    """Rejects a ``tokenizer.json`` that cuts texts at their beginning.

    Args:
      path: of `fast`, its content, for messages.
      config: content of ``tokenizer_config.json``, whose entry comes first.
    """
    part = fast.get("truncation")
    side = part.get("direction", "Right") if isinstance(part, dict) else "Right"
    if config.get("truncation_side") is None and str(side).lower() != "right":
        raise file_io.InputError(
            f"{path}: truncation has the direction {side!r}; this package only has 'Right', with "
            "which the pieces of long texts would be others than the model's"
        )


def check_last_step(path: str, fast: _Json, with_segments: bool) -> None:
    """Rejects a ``tokenizer.json`` that puts texts into the model's input in another way.

    Args:
      path: of `fast`, its content, for messages.
      with_segments: whether the model is given the segments.
    """
    step = fast.get("post_processor")
    step = step if isinstance(step, dict) else {}
    found = _layout(step)
    if found is None or _compared(found, with_segments) != _compared(_BOTH, with_segments):
        kind = step.get("type")
        shown = f" of {_shown(found[0])} and {_shown(found[1])}" if found else ""
        raise file_io.InputError(
            f"{path}: the post_processor is {kind!r}{shown}; expected {_shown(_SINGLE)} and "
            f"{_shown(_PAIR)} (each piece with its segment), as this package makes inputs, so such "
            "a model cannot be used"
        )
    ids = {t.get("content"): t.get("id") for t in fast.get("added_tokens") or () if t}
    for name, number in _ids(step).items():
        if ids.get(name, number) != number:
            raise file_io.InputError(
                f"{path}: the post_processor has the id {number} for {name}, added_tokens have "
                f"{ids[name]}: write the file again with the program that made it"
            )


def _compared(both: _Layout, with_segments: bool) -> _Layout:
    """Returns a layout with only those segments that matter."""
    return tuple(tuple((name, x if with_segments else 0) for name, x in parts) for parts in both)


def _shown(parts: Sequence[tuple[str, int]]) -> str:
    return " ".join(f"{name}:{segment}" for name, segment in parts)


def _layout(step: _Json) -> _Layout | None:
    """Returns the inputs that a step makes of one and of two texts; None if it is unknown."""
    if step.get("type") == "BertProcessing":
        names = {entry: (step.get(entry) or [None])[0] for entry in ("cls", "sep")}
        return _BOTH if names == {"cls": "[CLS]", "sep": "[SEP]"} else None
    if step.get("type") != "TemplateProcessing":
        return None
    try:
        return tuple(
            tuple((x["id"], x["type_id"]) for part in step[entry] for x in part.values())
            for entry in ("single", "pair")
        )
    except (KeyError, TypeError, AttributeError):
        return None


def _ids(step: _Json) -> dict[str, object]:
    """Returns {piece: id} of the pieces that a step of a known layout adds."""
    try:
        if step.get("type") == "BertProcessing":
            return {step[entry][0]: step[entry][1] for entry in ("cls", "sep")}
        return {
            name: ids[0] if len(ids := token["ids"]) == 1 else ids
            for name, token in step["special_tokens"].items()
        }
    except (KeyError, TypeError, AttributeError, IndexError):
        return {}


def check_steps_of_albert(path: str, rules: _Json, config_path: str, config: _Json) -> None:
    """Rejects a ``tokenizer.json`` with other steps than its class AlbertTokenizer has.

    Args:
      path: of the file.
      rules: values of `text_rules.TextRules` that its steps mean.
      config: content of ``tokenizer_config.json`` at `config_path`.
    """
    ours = {
        "do_lower_case": bool(config.get("do_lower_case", True)),
        "keep_accents": bool(config.get("keep_accents", False)),
        "quotes": True,  # it has no such entry
    }
    step_of = {"do_lower_case": "Lowercase", "keep_accents": "NFKD", "quotes": "``"}
    for name, value in ours.items():
        if rules[name] == value:
            continue
        has = rules[name] != (name == "keep_accents")
        by = f"{name} is {value}" + ("" if name in config else " by default")
        by = "it always has that step" if name == "quotes" else by
        raise file_io.InputError(
            f"{path}: the normalizer has {'the' if has else 'no'} step {step_of[name]}, but "
            f"{config_path} has tokenizer_class {config['tokenizer_class']!r}, and there {by}; "
            "transformers 5 takes the steps of the class. If the file is right, set "
            "tokenizer_class to 'TokenizersBackend'"
            + ("" if name == "quotes" else f", else {name} to what the model was trained with")
        )

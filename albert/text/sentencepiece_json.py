"""Makes a SentencePiece model of the one in a ``tokenizer.json`` of the library `tokenizers`.

Such a file has the steps before the model too. Those of transformers' AlbertTokenizer, and parts of
them, become rules (`text_rules`) and a normalizer; others are refused by name, as other ids would
be made in silence.
"""

import base64
import binascii
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from albert.io import file_io
from albert.text import sentencepiece_proto, wordpiece

_KINDS = ("Unigram", "BPE")
# Steps before the model in the only order that is read; a file may have some of them.
_STEPS = ("``", "''", "Strip", "NFKD", "StripAccents", "Lowercase", "Precompiled", " {2,}")
_REPLACED = {"``": '"', "''": '"', " {2,}": " "}
_TOGETHER = (("``", "''"), ("NFKD", "StripAccents"))
_HANGUL = ((0x1100, 0x11FF), (0xAC00, 0xD7A3))  # letters, and syllables that are made of them
_Json = Mapping[str, Any]


def holds(path: str, content: _Json) -> bool:
    """Returns whether a ``tokenizer.json`` has a model as those of SentencePiece.

    Raises:
      file_io.InputError: it is a byte-level BPE, which looks like one.
    """
    if wordpiece.tokenizer_model_type(content) not in _KINDS:
        return False
    if "ByteLevel" in map(_type, _flat(content.get("pre_tokenizer"), "pretokenizers")):
        raise file_io.InputError(
            f"{path} is a byte-level BPE, as those of GPT-2 and RoBERTa; this package has "
            "WordPiece and SentencePiece, so such a model cannot be used"
        )
    return True


def rules(path: str, content: _Json) -> dict[str, bool]:
    """Returns the values of `text_rules.TextRules` that the steps of a file mean."""
    steps = _steps(path, content)
    return {
        "as_huggingface": True,
        "quotes": "``" in steps,
        "keep_accents": "NFKD" not in steps,
        "do_lower_case": "Lowercase" in steps,
    }


def model_of(path: str, content: _Json) -> bytes:
    """Returns the content of the SentencePiece model of a file."""
    steps, model = _steps(path, content), content["model"]
    made = sentencepiece_proto.model_class()()
    normalizer = made.normalizer_spec
    normalizer.name = "identity"
    normalizer.add_dummy_prefix = _adds_prefix(path, content)
    if "Precompiled" in steps:
        normalizer.name = "tokenizer.json"
        normalizer.precompiled_charsmap = _charsmap(path, steps["Precompiled"])
    made.trainer_spec.byte_fallback = bool(model.get("byte_fallback"))
    if wordpiece.tokenizer_model_type(content) == "Unigram":
        pieces, unknown = _unigram_pieces(path, model)
    else:
        made.trainer_spec.model_type = sentencepiece_proto.BPE
        pieces, unknown = _bpe_pieces(path, model)
    special = _special(content)
    for piece, score in pieces:
        kind = sentencepiece_proto.CONTROL if piece in special else sentencepiece_proto.NORMAL
        if piece == unknown:
            kind = sentencepiece_proto.UNKNOWN
        elif made.trainer_spec.byte_fallback and piece.startswith("<0x") and len(piece) == 6:
            kind = sentencepiece_proto.BYTE
        made.pieces.add(piece=piece, score=score, type=kind)
    if "NFKD" in steps and "Precompiled" in steps:
        _check_no_hangul(path, pieces, made.trainer_spec.byte_fallback)
    return made.SerializeToString()


# --- steps ----------------------------------------------------------------------------------------


_SHOWN = 20  # characters of a pattern in messages


def _type(part: object) -> object:
    return part.get("type") if isinstance(part, dict) else None


def _flat(part: object, entry: str) -> list[_Json]:
    """Returns the steps of a part of the file, which may be a sequence; none for null."""
    if not isinstance(part, dict):
        return []
    inside = part.get(entry) if part.get("type") == "Sequence" else None
    return [x for step in inside for x in _flat(step, entry)] if inside is not None else [part]


def _name(step: _Json) -> str:
    """Returns the name of a step of the normalizer in `_STEPS`; else what it is."""
    if step.get("type") != "Replace":
        return str(step.get("type"))
    pattern = step.get("pattern")
    text = next(iter(pattern.values()), None) if isinstance(pattern, dict) else pattern
    if isinstance(text, str) and text in _REPLACED and step.get("content") == _REPLACED[text]:
        return text
    return f"Replace of {str(text)[:_SHOWN]!r}"


def _steps(path: str, content: _Json) -> dict[str, _Json]:
    """Returns {name: step} of the normalizer."""
    found = {_name(step): step for step in _flat(content.get("normalizer"), "normalizers")}
    places = [_STEPS.index(name) if name in _STEPS else None for name in found]
    unknown = [name for name, place in zip(found, places, strict=True) if place is None]
    if unknown or sorted(places) != places:  # type: ignore[type-var]
        raise file_io.InputError(
            f"{path}: the normalizer has the steps {', '.join(found)}; of a SentencePiece model "
            f"only these are read, in this order: {', '.join(_STEPS)}. Give spm_model_file (if "
            "this toolkit wrote the file, the spiece.model that it wrote next to it)"
        )
    for one, other in _TOGETHER:
        if (one in found) != (other in found):
            raise file_io.InputError(
                f"{path}: the normalizer has only one of the steps {one} and {other}, which are "
                "read together: give spm_model_file"
            )
    return found


def _adds_prefix(path: str, content: _Json) -> bool:
    """Returns whether the first word begins with a space, and rejects other splits into words."""
    parts = _flat(content.get("pre_tokenizer"), "pretokenizers")
    kinds = list(map(_type, parts))
    if kinds not in (["Metaspace"], ["WhitespaceSplit", "Metaspace"]):
        raise file_io.InputError(
            f"{path}: the pre_tokenizer is {', '.join(map(str, kinds)) or None}; of a "
            "SentencePiece model only Metaspace is read, also after WhitespaceSplit: give "
            "spm_model_file"
        )
    part = parts[-1]
    scheme = part.get("prepend_scheme") or ("always" if part.get("add_prefix_space") else "never")
    is_split = len(parts) == 2 or any(
        not t.get("special") for t in content.get("added_tokens") or ()
    )
    if part.get("replacement") != wordpiece.WORD_START or (scheme == "first" and is_split):
        raise file_io.InputError(
            f"{path}: Metaspace has the replacement {part.get('replacement')!r} and the "
            f"prepend_scheme {scheme!r}, with which words do not all begin alike: give "
            "spm_model_file"
        )
    if scheme == "never" and len(parts) == 2:
        raise file_io.InputError(
            f"{path}: WhitespaceSplit with the prepend_scheme 'never' loses all spaces, which no "
            "SentencePiece model does"
        )
    return scheme != "never"


def _charsmap(path: str, step: _Json) -> bytes:
    try:
        return base64.b64decode(step["precompiled_charsmap"], validate=True)
    except (KeyError, TypeError, ValueError, binascii.Error) as error:
        raise file_io.InputError(f"{path} is damaged: precompiled_charsmap ({error})") from error


def _check_no_hangul(path: str, pieces: Sequence[tuple[str, float]], has_bytes: bool) -> None:
    """Rejects Korean pieces: the library leaves decomposed syllables so, SentencePiece does not."""
    korean = (p for p, _ in pieces if any(a <= ord(c) <= b for c in p for a, b in _HANGUL))
    found = "byte_fallback" if has_bytes else next(korean, None)
    if found:
        raise file_io.InputError(
            f"{path}: the vocabulary can spell Korean ({found}), which the library `tokenizers` "
            "splits in another way than SentencePiece after NFKD: give spm_model_file"
        )


# --- models ---------------------------------------------------------------------------------------


def _special(content: _Json) -> set[str]:
    added = content.get("added_tokens")
    tokens = added if isinstance(added, list) else []
    return {t["content"] for t in tokens if isinstance(t, dict) and t.get("special")}


def _damaged(path: str, what: str) -> file_io.InputError:
    return file_io.InputError(f"{path} is damaged, or no model of SentencePiece: {what}")


def _unigram_pieces(path: str, model: _Json) -> tuple[list[tuple[str, float]], str]:
    """Returns the pieces with their scores by id, and the unknown one."""
    vocab, unknown = model.get("vocab"), model.get("unk_id")
    try:
        pieces = [(str(piece), float(score)) for piece, score in vocab or ()]
        return pieces, pieces[unknown][0]  # type: ignore[index]
    except (TypeError, ValueError, IndexError) as error:
        raise _damaged(path, f"vocab or unk_id ({error})") from error


def _bpe_pieces(path: str, model: _Json) -> tuple[list[tuple[str, float]], str]:
    """Returns the pieces by id, with the scores that give the order of merges, and the unknown."""
    absent = ("dropout", "continuing_subword_prefix", "end_of_word_suffix")
    only = {**dict.fromkeys(absent), "ignore_merges": False, "fuse_unk": True}
    for name, value in only.items():
        if (model.get(name) or None) != (value or None):
            raise file_io.InputError(
                f"{path}: {name} is {model.get(name)!r}, which no SentencePiece model has: "
                "give spm_model_file"
            )
    vocab, merges, unknown = model.get("vocab"), model.get("merges"), model.get("unk_token")
    if not (isinstance(vocab, dict) and isinstance(merges, list) and unknown in vocab):
        raise _damaged(path, "vocab, merges or unk_token")
    if sorted(vocab.values()) != list(range(len(vocab))):
        raise _damaged(path, "ids are missing or repeat")
    pairs = [tuple(m.split(" ") if isinstance(m, str) else m) for m in merges]
    order = [whole for whole, _ in itertools.groupby("".join(pair) for pair in pairs)]
    _check_merges(path, order, set(vocab), pairs)
    scores = {whole: float(-rank) for rank, whole in enumerate(order)}
    by_id = sorted(vocab, key=vocab.__getitem__)
    return [(piece, scores.get(piece, float(-len(order)))) for piece in by_id], str(unknown)


def _check_merges(
    path: str, order: Sequence[str], pieces: set[str], pairs: Sequence[tuple[str, ...]]
) -> None:
    """Rejects merges by which not every two parts of a piece make the piece, as in SentencePiece.

    Args:
      order: pieces in the order in which they are merged.
    """
    known = pieces & ({*order} | {p for p in pieces if len(p) == 1})
    expected = {
        (whole[:end], whole[end:])
        for whole in order
        for end in range(1, len(whole))
        if whole[:end] in known and whole[end:] in known
    }
    if len(set(order)) != len(order) or expected != set(pairs) or not pieces.issuperset(order):
        odd = next(iter(expected ^ set(pairs)), order[:1])
        raise file_io.InputError(
            f"{path}: its merges are not those of a SentencePiece model, in which any two "
            f"neighbors that make a known piece are merged (see {' '.join(odd)!r}): give "
            "spm_model_file"
        )

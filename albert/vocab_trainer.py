"""Trains the SentencePiece vocabulary of an ALBERT model.

The recipe is that of the published English models: unigram pieces of preprocessed text, the
special pieces in their places, some marks always alone. Source: ALBERT (Lan et al., 2020),
section 4.1; SentencePiece (Kudo and Richardson, 2018).
"""

import collections
import dataclasses
import io
import random
import re

from albert import corpus, file_io, tokenization

CONTROL_SYMBOLS = ("[CLS]", "[SEP]", "[MASK]")  # ids 2, 3, 4, after <pad> 0 and <unk> 1
# Pieces by themselves wherever they occur.
USER_DEFINED_SYMBOLS = ("(", ")", '"', "-", ".", "–", "£", "€")
# SentencePiece leaves longer lines out without a word; here they are counted.
MAX_SENTENCE_BYTES = 4192


@dataclasses.dataclass(frozen=True)
class Recipe:
    """What the vocabulary depends on, beside the text.

    Attributes:
      vocab_size: V, all special pieces counted.
      do_lower_case: lower-case the text.
      character_coverage: share of the text's characters that get a piece of their own.
      input_sentence_size: most sentences to train on, drawn at random; bounds the memory.
      num_threads: of SentencePiece; the pieces depend on it, but not on the number of cores.
      random_seed: non-negative integer; decides which sentences are drawn.
    """

    vocab_size: int = 30000
    do_lower_case: bool = True
    character_coverage: float = 0.99995
    input_sentence_size: int = 10_000_000
    num_threads: int = 1
    random_seed: int = 12345


def train(input_paths, recipe):
    """Trains a vocabulary on text files, one sentence a line.

    Args:
      input_paths: UTF-8 text files.
      recipe: `Recipe`.

    Returns:
      (serialized SentencePiece model, Counter of lines, sentences used and lines left out).

    Raises:
      file_io.InputError: unreadable text, or too little of it for so many pieces.
    """
    # Imported here: it is only needed when training really begins.
    import sentencepiece

    plan = corpus.plan_blocks(input_paths)
    counts = collections.Counter()
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=_sentences(plan, recipe, counts),
            model_writer=model,
            model_type="unigram",
            vocab_size=recipe.vocab_size,
            character_coverage=recipe.character_coverage,
            pad_id=0,
            unk_id=1,
            bos_id=-1,
            eos_id=-1,
            control_symbols=list(CONTROL_SYMBOLS),
            user_defined_symbols=list(USER_DEFINED_SYMBOLS),
            shuffle_input_sentence=True,
            input_sentence_size=0,  # no limit: they have been drawn
            max_sentence_length=MAX_SENTENCE_BYTES,
            num_threads=recipe.num_threads,
            minloglevel=1,
        )
    except RuntimeError as error:
        raise file_io.InputError(_explain(str(error), recipe, counts)) from error
    return model.getvalue(), counts


def _lines(plan):
    """Yields the lines that are not blank."""
    for segment in (segment for block in plan.blocks for segment in block):
        for lines in corpus.read_lines(segment):
            yield from filter(str.strip, lines)


def _sentences(plan, recipe, counts):
    """Yields preprocessed lines; if there are too many, as many as wanted at random, in order.

    SentencePiece can draw them too, but not twice the same ones (0.2.3, whatever its seed).
    """
    counts["lines"] = sum(1 for _ in _lines(plan))
    wanted = min(recipe.input_sentence_size, counts["lines"])
    rng = random.Random(recipe.random_seed)
    for left, line in zip(range(counts["lines"], 0, -1), _lines(plan), strict=True):
        if wanted < left and rng.random() * left >= wanted:
            counts["not_drawn"] += 1
            continue
        wanted -= 1
        sentence = tokenization.preprocess_text(line, lower=recipe.do_lower_case)
        if not sentence:
            counts["empty"] += 1
        elif len(sentence.encode()) > MAX_SENTENCE_BYTES:
            counts["too_long"] += 1
        else:
            counts["sentences"] += 1
            yield sentence


def _explain(message, recipe, counts):
    """What SentencePiece's error means for the flags."""
    amount = f"{counts['sentences']} sentence(s)"
    if not counts["sentences"]:
        return "no sentence found in the input; expected one sentence a line"
    if largest := re.search(r"too high.*<= (\d+)", message):
        return (
            f"vocab_size={recipe.vocab_size} is too high for {amount}: they yield at most "
            f"{largest[1]} pieces; give more text, or vocab_size={largest[1]}"
        )
    if smaller := re.search(r"smaller than required_chars\. (\d+) vs (\d+)", message):
        return (
            f"vocab_size={recipe.vocab_size} is too low for {amount}: the special pieces and "
            f"the characters alone are {smaller[2]}; give a larger vocab_size or a lower "
            f"character_coverage than {recipe.character_coverage:g}"
        )
    return f"SentencePiece cannot train on {amount}: {message}"


def vocab_text(model):
    """Text of the `.vocab` file of a serialized model: a line "piece<TAB>score" for each id."""
    import sentencepiece

    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    return "".join(
        f"{processor.id_to_piece(i)}\t{processor.get_score(i):g}\n" for i in range(len(processor))
    )


def write(prefix, model):
    """Writes `<prefix>.model` and `<prefix>.vocab`; files there are replaced as a whole."""
    file_io.write_text(f"{prefix}.vocab", vocab_text(model))
    with file_io.atomic_writer(f"{prefix}.model", "wb") as file:
        file.write(model)

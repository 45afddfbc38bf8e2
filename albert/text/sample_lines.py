"""Lines to compare two tokenizers on: a sentence in each of twelve scripts, and the own pieces.

The sentences are the first article of the Universal Declaration of Human Rights, the last one with
white space of other kinds.
"""

import random
import re
from collections.abc import Iterator

from albert.text import tokenization

SENTENCES = (
    "All human beings are born free and equal in dignity and rights. They are endowed with reason "
    "and conscience and should act towards one another in a spirit of brotherhood.",
    "Alle Menschen sind frei und gleich an Würde und Rechten geboren. Sie sind mit Vernunft und "
    "Gewissen begabt und sollen einander im Geiste der Brüderlichkeit begegnen.",
    "Tous les êtres humains naissent libres et égaux en dignité et en droits.",
    "Все люди рождаются свободными и равными в своем достоинстве и правах.",
    "Όλοι οι άνθρωποι γεννιούνται ελεύθεροι και ίσοι στην αξιοπρέπεια και τα δικαιώματα.",
    "يولد جميع الناس أحراراً متساوين في الكرامة والحقوق.",
    "כל בני אדם נולדו בני חורין ושווים בערכם ובזכויותיהם.",
    "सभी मनुष्यों को गौरव और अधिकारों के मामले में जन्मजात स्वतन्त्रता और समानता प्राप्त है।",
    "人人生而自由,在尊严和权利上一律平等。他们赋有理性和良心。",
    "すべての人間は、生まれながらにして自由であり、かつ、尊厳と権利とについて平等である。",
    "모든 인간은 태어날 때부터 자유로우며 그 존엄과 권리에 있어 동등하다.",
    "มนุษย์ทั้งหลายเกิดมามีอิสระและเสมอภาคกันในเกียรติศักดิ์และสิทธิ",
    "Mọi người sinh ra đều được tự do và bình đẳng về nhân phẩm và quyền lợi.",
    "ყველა ადამიანი იბადება თავისუფალი და თანასწორი თავისი ღირსებითა და უფლებებით.",
    'In 1948 they said: "it costs $3.50 (or 3,20 €)" - didn\'t they? 🙂 <br> C++ a_b x@y.org',
    "All\thuman\u00a0beings\u3000are born free",
)
_MADE_LINES, _PIECES = 200, 12


def lines(tokenizer: tokenization.FullTokenizer) -> Iterator[str]:
    """Yields `SENTENCES`, and lines of random pieces of a vocabulary, always the same.

    A comma after a digit is left out, where pieces are split again (see
    `tokenization.encode_pieces`).
    """
    rng = random.Random(1)
    special = {tokenizer.pad_id, tokenizer.unk_id, tokenizer.cls_id, tokenizer.sep_id}
    special.add(tokenizer.mask_id)
    ids = [i for i in range(tokenizer.base_size) if i not in special]
    if tokenizer.sp_model:
        ids = [i for i in ids if not tokenizer.sp_model.is_byte(i)]
    pieces = [tokenizer.inv_vocab[i] for i in ids]
    made = ("".join(map(_spelled, rng.choices(pieces, k=_PIECES))) for _ in range(_MADE_LINES))
    for line in (*SENTENCES, *made):
        yield re.sub(r"(?<=\d),", "", line)


def _spelled(piece: str) -> str:
    """Returns the text of a piece of either kind."""
    if piece.startswith("##"):
        return piece[2:]
    text = piece.replace(tokenization.WORD_START, " ")
    return text if text != piece else f" {piece}"

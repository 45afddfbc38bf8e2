"""Flags of pre-training and of making its records: masks, and measurements on BLiMP."""

import dataclasses

from albert.cli import options
from albert.data import masking
from albert.io import file_io


@dataclasses.dataclass(frozen=True, kw_only=True)
class Masks(options.Group):
    """How many tokens are masked and how they are chosen."""

    max_predictions_per_seq: int = options.flag(
        20,
        "Maximum number of masked tokens in an instance; records that hold masks fit only the "
        "value that they were made with.",
        check=options.positive,
    )
    masked_lm_prob: float = options.flag(
        0.15,
        "Fraction of the tokens to mask, where masks are drawn.",
        check=options.unit_interval,
    )
    ngram: int = options.flag(
        3,
        "Longest run of words masked together, where masks are drawn.",
        check=options.positive,
    )
    favor_shorter_ngram: bool = options.flag(
        True,
        "Where masks are drawn, runs of n words have probability ~ 1/n; if false in reverse order.",
    )
    do_whole_word_mask: bool = options.flag(
        True, "Where masks are drawn, mask all pieces of a word or none."
    )
    do_permutation: bool = options.flag(
        False,
        "Where masks are drawn, choose as many further tokens, permute and predict them.",
    )

    def config(self) -> masking.MaskingConfig:
        """Returns the rules by which masks are drawn."""
        return masking.MaskingConfig(
            self.max_predictions_per_seq,
            self.masked_lm_prob,
            self.ngram,
            self.favor_shorter_ngram,
            self.do_whole_word_mask,
            self.do_permutation,
        )

    def given_rules(self) -> list[str]:
        """Returns the given flags that only affect how masks are drawn, with dashes."""
        names = ("masked_lm_prob", "ngram", "favor_shorter_ngram", "do_whole_word_mask")
        return [f"--{name}" for name in (*names, "do_permutation") if name in self.given]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Blimp(options.Group):
    """Measurements of each checkpoint of pre-training on BLiMP."""

    blimp_data_dir: str | None = options.flag(
        None, "With --do_eval: also measure on the files of BLiMP in this folder."
    )
    blimp_limit: int | None = options.flag(
        None,
        "Maximum number of pairs of each of BLiMP's paradigms, from the front; by default all.",
        minimum=1,
    )

    def check(self, do_eval: bool) -> None:
        """Rejects flags without effect; raises `file_io.InputError`."""
        if self.blimp_data_dir and not do_eval:
            raise file_io.InputError("--blimp_data_dir needs --do_eval")
        if not self.blimp_data_dir:
            self.refuse_given("--blimp_data_dir", "blimp_limit")

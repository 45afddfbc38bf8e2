"""Matches the variables of a model with those of a checkpoint, by their names and shapes."""

import dataclasses
from collections.abc import Collection, Mapping, Sequence

from absl import logging

from albert.io import file_io
from albert.model import weight_names

_FIRST_ALBERT_ZH = "bert/encoder/layer_shared/"  # begins its names of shared layers

# Begin the names of heads of Hugging Face: those for pre-training, and those for tasks.
_PRETRAINING_THERE = ("cls.", "predictions.", "sop_classifier.")
_TASKS_THERE = ("classifier.", "qa_outputs.")

Shapes = Mapping[str, Sequence[int]]  # {variable: shape}


@dataclasses.dataclass(frozen=True)
class Match:
    """The variables of a model that a checkpoint has a value for.

    Attributes:
      here, there: shapes in the model, in the checkpoint.
      loaded: names of the variables to load, sorted.
    """

    prefix: str
    here: Shapes
    there: Shapes
    loaded: list[str]

    @classmethod
    def between(cls, prefix: str, here: Shapes, there: Shapes) -> "Match":
        """Matches the names here with those there."""
        if any(name.startswith(_FIRST_ALBERT_ZH) for name in there):
            raise file_io.InputError(
                f"{prefix} has the first layout of brightmart/albert_zh ({_FIRST_ALBERT_ZH}), "
                "which is another network: take the same model with a name in _google, or a "
                "published one, such as albert_base_zh"
            )
        return cls(prefix, here, there, [name for name in sorted(here) if name in there])

    def encoder_only(self) -> "Match":
        """Returns the match without the variables outside the encoder."""
        encoder = [name for name in self.loaded if name.startswith(weight_names.ENCODER_PREFIX)]
        return dataclasses.replace(self, loaded=encoder)

    @property
    def new(self) -> list[str]:
        """Names here of the other variables, sorted."""
        return sorted(self.here.keys() - set(self.loaded))

    @property
    def unused(self) -> list[str]:
        """Names there of weights that the model does not have, sorted."""
        read = {*self.loaded, *weight_names.training_state(self.there)}
        return sorted(self.there.keys() - read)

    def has_other_head(self) -> bool:
        """Returns whether a variable outside the encoder has another shape; warns if so."""
        for name in self.loaded:
            there, here = list(self.there[name]), list(self.here[name])
            if not name.startswith(weight_names.ENCODER_PREFIX) and there != here:
                logging.warning(
                    "The head of %s has other sizes than that of this run, so a new one is "
                    "trained: %s is %s there, %s here",
                    self.prefix,
                    name,
                    there,
                    here,
                )
                return True
        return False

    def check_shapes(self, new_rows: int = 0) -> None:
        """Rejects shapes that differ, and a checkpoint that matches nothing.

        It may lack `new_rows` pieces at the end of the vocabulary.
        """
        shapes = {name: self.there[name] for name in self.loaded}
        for name in shapes.keys() & set(weight_names.BY_PIECE):
            rows, *rest = shapes[name]
            if rows + new_rows == self.here[name][0]:
                shapes[name] = [rows + new_rows, *rest]
        check_shapes(self.prefix, shapes, self.here, self._explanation())
        if not shapes:
            raise file_io.InputError(
                f"{self.prefix} has no variable of this model; it holds {sorted(self.there)[:10]}"
            )

    def check_surplus(self) -> None:
        """Rejects a checkpoint with more layers than the model: it would be another network."""
        surplus = [
            name
            for name in self.unused
            if name.startswith(f"{weight_names.ENCODER_PREFIX}encoder/")
        ]
        if surplus:
            raise file_io.InputError(
                f"{self.prefix} has encoder variables that the configuration lacks, such as "
                f"{surplus[0]}; {self._explanation()}"
            )

    def check_missing(
        self, used: Collection[str], trained: Collection[str], optional: tuple[str, ...] | None
    ) -> None:
        """Rejects a checkpoint without variables that would then have random values.

        Args:
          used: names of the variables that the outputs of the model depend on.
          trained: names of the variables that training would change.
          optional: prefixes of parts of the encoder that may be new if the model is trained; None
            if it is not trained.
        """

        def becomes_trained(name: str) -> bool:
            if optional is None or name not in trained:
                return False
            return not name.startswith(weight_names.ENCODER_PREFIX) or name.startswith(optional)

        missing = [name for name in self.new if name in used and not becomes_trained(name)]
        if missing:
            hint = self._hint(missing, is_trained=optional is not None)
            unused = f" it has unused {self.unused};" if self.unused else ""
            raise file_io.InputError(f"{self.prefix} lacks {missing};{unused} {hint}")

    def _explanation(self) -> str:
        """Explains how the sizes of the checkpoint differ from the model's; "" if unknown."""
        return weight_names.explain_mismatch(self.there, self.here)

    def _hint(self, missing: list[str], is_trained: bool) -> str:
        """Returns what to do about missing variables."""
        encoder = [name for name in missing if name.startswith(weight_names.ENCODER_PREFIX)]
        if not encoder and any(name.startswith(weight_names.WORDS_HEAD) for name in missing):
            return (
                "this checkpoint has no head for masked words: expected a pre-trained model, such "
                "as the folder of a pre-training run, or a Hugging Face folder of a model for "
                "masked words"
            )
        if not encoder:
            return "this checkpoint has no head for the task: fine-tune first (do_train)"
        if not all(name.startswith(weight_names.POOLER) for name in encoder):
            config = "does the configuration file belong to this checkpoint?"
            return self._explanation() or config
        if is_trained:
            return (
                "this checkpoint has no pooler, and a frozen encoder would keep a random one: "
                "train it (without freeze_encoder)"
            )
        return (
            "this checkpoint has no pooler, as models for masked words, questions or words have "
            "none: fine-tune first (do_train), or take what does without it, such as vectors=mean "
            "or first"
        )


def warn_of_unknown(prefix: str, unknown: Sequence[str], has_head: bool) -> None:
    """Warns of tensors that no model of this package has, so that outputs may be others.

    Args:
      unknown: their names, those of `huggingface.Reader`.
      has_head: whether the model that is loaded has a head; without one, heads are none of it.
    """
    heads = _PRETRAINING_THERE + (() if has_head else _TASKS_THERE)
    names = [name for name in unknown if not name.startswith(heads)]
    if names:
        logging.warning(
            "%s has tensors that this package does not use (%d, such as %s); if the outputs of the "
            "model depend on them, they are others here",
            prefix,
            len(names),
            names[0],
        )


def check_shapes(prefix: str, there: Shapes, here: Shapes, explanation: str = "") -> None:
    """Rejects shapes of the same names that differ; the model has at least those of the checkpoint.

    Args:
      explanation: what to add to the message.
    """
    wrong = [
        f"{name} is {list(shape)} in the checkpoint, {list(here[name])} in the model"
        for name, shape in sorted(there.items())
        if list(shape) != list(here[name])
    ]
    if wrong:
        listing = "; ".join([*wrong, *filter(None, [explanation])])
        raise file_io.InputError(f"{prefix} does not fit the configuration: {listing}")

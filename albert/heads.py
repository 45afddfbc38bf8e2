"""Models with their heads under the name users import; the work is done in `albert.model.heads`."""

from albert.io import requirements

with requirements.explained():
    from albert.model.heads import (
        ClassifierModel,
        MultipleChoiceModel,
        RegressionModel,
        SquadV1Model,
        SquadV2Model,
        TokenClassifierModel,
    )
    from albert.model.pretraining_heads import (
        PretrainingModel,
    )

__all__ = [
    "ClassifierModel",
    "MultipleChoiceModel",
    "PretrainingModel",
    "RegressionModel",
    "SquadV1Model",
    "SquadV2Model",
    "TokenClassifierModel",
]

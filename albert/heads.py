"""Models with their heads under the name users import; the work is done in `albert.model.heads`.

Examples:
    >>> from albert import heads, modeling
    >>> config = modeling.AlbertConfig.from_json_file("configs/albert_small.json")
    >>> model = heads.ClassifierModel(config, num_labels=3)
    >>> ids = [[2, 13, 1, 3]]
    >>> batch = {"input_ids": ids, "input_mask": [[1] * 4], "segment_ids": [[0] * 4]}
    >>> model(batch)["probabilities"].shape
    TensorShape([1, 3])
"""

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

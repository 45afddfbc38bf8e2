"""Models with their heads under the name users import; the work is done in `albert.model.heads`.

Examples:
    >>> import numpy as np
    >>> from albert import heads, modeling
    >>> config = modeling.AlbertConfig.from_json_file("configs/albert_small.json")
    >>> model = heads.ClassifierModel(config, num_labels=3)
    >>> names = ("input_ids", "input_mask", "segment_ids")
    >>> batch = {name: np.ones([1, 4], np.int32) for name in names}
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
    from albert.model.pretraining_heads import PretrainingModel

__all__ = [
    "ClassifierModel",
    "MultipleChoiceModel",
    "PretrainingModel",
    "RegressionModel",
    "SquadV1Model",
    "SquadV2Model",
    "TokenClassifierModel",
]

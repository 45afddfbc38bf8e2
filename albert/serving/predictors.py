"""The predictors of fine-tuned models by kind.

`predict`, `ask`, the server and the check of exports use nothing else of a task.
"""

from typing import Any

from albert.io import file_io
from albert.model import model_folder
from albert.serving import inference
from albert.serving.choice_predictor import ChoicePredictor
from albert.serving.multi_label_predictor import MultiLabelPredictor
from albert.serving.predictor import Predictor as Predictor
from albert.serving.question_predictor import Answerer
from albert.serving.text_predictor import TextPredictor
from albert.serving.token_predictor import TokenPredictor

_CLASSES: tuple[type[Predictor], ...] = (
    *(TextPredictor, MultiLabelPredictor, TokenPredictor),
    *(ChoicePredictor, Answerer),
)
PREDICTORS = {kind: predictor for predictor in _CLASSES for kind in predictor.kinds}


def load(
    model: str | inference.FoundModel, runtime: str = "auto", threads: int | None = None
) -> Predictor:
    """Returns the predictor of a model, which may be a training or serving folder.

    The other arguments are for serving folders; see `Predictor`.
    """
    found_model = inference.find(model)
    return PREDICTORS[found_model.folder.kind](found_model, runtime, threads)


def reader(folder: model_folder.ModelFolder) -> Predictor:
    """Returns a predictor without weights, which reads and scores but cannot predict."""

    def no_weights(features: dict[str, Any]) -> dict[str, Any]:
        raise file_io.InputError(f"the weights of {folder.path} are not loaded")

    return load(inference.FoundModel(folder, function=no_weights))

"""Models with heads, and folders of them in both forms, for the tests around Hugging Face."""

import numpy as np

from albert.export import huggingface_export
from albert.model import encoder, heads, pretraining_heads
from tests.support import builders

CONFIG = builders.tiny_config(
    hidden_size=12, num_hidden_layers=4, num_hidden_groups=2, inner_group_num=2,
    num_attention_heads=3, intermediate_size=20, max_position_embeddings=24, initializer_range=0.3,
)  # fmt: skip
# As many values for embeddings as for layers: no mapping between them here.
SQUARE = encoder.AlbertConfig(
    **{**CONFIG.to_dict(), "embedding_size": 12, "num_hidden_groups": 1, "inner_group_num": 1,
       "hidden_act": "relu"},
)  # fmt: skip
# A BERT, with the activation of those of Hugging Face.
BERT = encoder.AlbertConfig(
    **{**SQUARE.to_dict(), "num_hidden_groups": 4, "hidden_act": "gelu_erf"}
)
# Keys that a BERT's configuration does not have.
ONLY_ALBERT = ("embedding_size", "num_hidden_groups", "inner_group_num", "down_scale_factor")
MODELS = {
    "encoder": lambda config: encoder.AlbertModel(config, 1),
    "pretraining": lambda config: pretraining_heads.PretrainingModel(config, seed=1),
    "classification": lambda config: heads.ClassifierModel(config, 3, seed=1),
    "regression": lambda config: heads.RegressionModel(config, seed=1),
    "token_classification": lambda config: heads.TokenClassifierModel(config, 3, seed=1),
    "multiple_choice": lambda config: heads.MultipleChoiceModel(config, 2, 0.1, seed=1),
    "squad_v1": lambda config: heads.SquadV1Model(config, seed=1),
}
# The classes of transformers.
CLASSES = {
    "encoder": "AlbertModel", "pretraining": "AlbertForPreTraining",
    "classification": "AlbertForSequenceClassification",
    "regression": "AlbertForSequenceClassification",
    "token_classification": "AlbertForTokenClassification",
    "multiple_choice": "AlbertForMultipleChoice", "squad_v1": "AlbertForQuestionAnswering",
}  # fmt: skip
LABELS = ["no", "maybe", "yes"]


def class_of(head, architecture):
    """The class of an architecture for a head."""
    return CLASSES[head].replace("Albert", architecture.capitalize())


def randomize(model):
    """Every variable gets values that show where they went; biases too."""
    rng = np.random.default_rng(7)
    for variable in sorted(model.variables, key=lambda v: v.name):
        variable.assign_add(rng.normal(0, 0.2, variable.shape).astype(np.float32))
    return model


def write_model(folder, head, config=CONFIG):
    """A folder with checkpoint, configuration and vocabulary; returns the model."""
    model = randomize(MODELS[head](config))
    builders.write_model(folder, model, config, "spiece.model")
    return model


def exported(tmp_path, head, config=CONFIG, architecture="albert"):
    """(model, its folder in the form of Hugging Face)."""
    model = write_model(tmp_path / "ours", head, config)
    huggingface_export.export(
        model_dir=str(tmp_path / "ours"),
        output_dir=str(tmp_path / "theirs"),
        head=None if head in ("encoder", "pretraining", "squad_v1") else head,
        labels=LABELS if "classification" in head else (),
        architecture=architecture,
    )
    return model, tmp_path / "theirs"

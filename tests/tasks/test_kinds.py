"""Every kind of model has a command, which messages name if a description is missing."""

import json

import pytest

from albert.io import file_io
from albert.model import checkpoints, heads, pretraining_heads
from albert.tasks import kinds
from tests.support import command_lines
from tests.support.builders import tiny_config

CONFIG = tiny_config(max_position_embeddings=32)


@pytest.mark.parametrize(
    ("make", "names", "message"),
    [
        (
            lambda: heads.ClassifierModel(CONFIG, 3, seed=1),
            ("classifier",),
            r": python -m albert.run_classifier --task_name=… --data_dir=… --do_predict --output_",
        ),
        (
            lambda: heads.RegressionModel(CONFIG, seed=1),
            ("multiple_choice",),
            r": python -m albert.run_race --nodo_train --nodo_eval --data_dir=… --do_predict --ou",
        ),
        (
            lambda: heads.SquadV1Model(CONFIG, seed=1),
            ("squad_v1", "squad_v2"),
            r": python -m albert.run_squad_v1 --predict_file=… --do_predict --output_dir=\S+out ",
        ),
        (
            lambda: heads.TokenClassifierModel(CONFIG, 3, seed=1),
            ("token_classifier",),
            r": python -m albert.run_token_classifier --test_file=… --do_predict --output_dir=\S+o",
        ),
        (
            lambda: heads.SquadV2Model(CONFIG, 2, 2, 0.1, seed=1),
            ("squad_v1", "squad_v2"),
            r": python -m albert.run_squad_v2 --predict_file=… --do_predict --output_dir=\S+out ",
        ),
        (lambda: heads.RegressionModel(CONFIG, seed=1), (), "run_classifier .* or .*run_race"),
        (
            lambda: heads.ClassifierModel(CONFIG, 3, seed=1),
            ("squad_v1", "squad_v2"),
            "by its weights it is a model of kind classifier; expected squad_v1 or squad_v2",
        ),
        (
            lambda: pretraining_heads.PretrainingModel(CONFIG),
            (),
            "of kind pre-trained; expected classifier or",
        ),
    ],
)
def test_a_folder_without_description_names_the_command_that_adds_it(
    tmp_path, make, names, message
):
    folder = str(tmp_path / "out")
    checkpoints.save(f"{folder}/model.ckpt-3", make())
    with pytest.raises(file_io.InputError, match=message):
        kinds.read_folder(folder, *names)


def test_a_model_of_one_label_is_named(tmp_path):
    path = tmp_path / "config.json"
    for kind in ("BertForTokenClassification", "BertForSequenceClassification"):
        config = {"model_type": "bert", "architectures": [kind], "id2label": {"0": "only"}}
        config["problem_type"] = "multi_label_classification"
        path.write_text(json.dumps(config))
        with pytest.raises(file_io.InputError, match=f"{path}: the model has one label, 'only'; a"):
            kinds.read_folder(str(tmp_path))


def test_every_kind_has_a_command():
    for row in kinds.KINDS.values():
        script, *arguments = row.command.split()
        command_lines.parse(script, *arguments, "--output_dir=x")

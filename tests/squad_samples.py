"""Small SQuAD files, a configuration and flags for the tests of the SQuAD scripts."""

import json
import pathlib

from absl import flags

from albert import demo_data, file_io, modeling

SPM = pathlib.Path(__file__).parent / "testdata" / "tiny.model"
COUNTS = {"train": 160, "dev": 12}


def content(split, count, version):
    """A SQuAD file: the demo's questions; version 2 adds one that has no answer to each text."""
    data = json.loads(demo_data.squad_files(seed=1)[split])
    paragraphs = data["data"][0]["paragraphs"] = data["data"][0]["paragraphs"][:count]
    if version == 2:
        for number, paragraph in enumerate(paragraphs):
            question = {"id": f"{number}-why", "question": "Why?", "answers": []}
            paragraph["qas"].append({**question, "is_impossible": True})
    return data


def write_inputs(folder, version):
    """train.json, dev.json, test.json (without answers) and albert_config.json."""
    for split, count in COUNTS.items():
        file_io.write_json(str(folder / f"{split}.json"), content(split, count, version))
    unlabelled = content("dev", 3, version)
    for paragraph in unlabelled["data"][0]["paragraphs"]:
        for question in paragraph["qas"]:
            del question["answers"]
            question.pop("is_impossible", None)
    file_io.write_json(str(folder / "test.json"), unlabelled)
    config = modeling.AlbertConfig(
        vocab_size=400, embedding_size=32, hidden_size=64, num_hidden_layers=2,
        num_attention_heads=2, intermediate_size=192, max_position_embeddings=64,
        initializer_range=0.1,
    )  # fmt: skip
    file_io.write_text(str(folder / "albert_config.json"), config.to_json_string())


def flags_for(inputs, output_dir, **changes):
    """A short run; `changes` add or replace flags, None leaves one out."""
    values = {
        "output_dir": output_dir, "albert_config_file": inputs / "albert_config.json",
        "spm_model_file": SPM, "train_file": inputs / "train.json",
        "predict_file": inputs / "dev.json", "max_seq_length": 64, "max_query_length": 16,
        "doc_stride": 24, "train_batch_size": 16, "predict_batch_size": 16,
        "learning_rate": 1e-3, "num_train_epochs": 0.25, "save_checkpoints_steps": 5, **changes,
    }  # fmt: skip
    return {name: value for name, value in values.items() if value is not None}


def run(module, values):
    """Runs a script's main in this process."""
    flag_values = flags.FlagValues()
    module.define_flags(flag_values)
    flag_values(["script", *(f"--{name}={value}" for name, value in values.items())])
    module.main(flag_values)


def read_results(folder):
    """The blocks of eval_results.txt as dicts of texts."""
    text = (folder / "eval_results.txt").read_text()
    blocks = [block.strip() for block in text.split("=" * 50)]
    return [dict(line.split(" = ") for line in block.splitlines()) for block in blocks if block]


def read_json(path):
    return json.loads(path.read_text(encoding="utf-8"))

"""Makes albert_mini: records, pre-training with a teacher, the shipped folder, and its scores.

    ./experiments/albert_mini.sh --teacher=all-MiniLM-L6-v2 --data=DATA --work=WORK

After the pre-training, the model learns in rounds to compare two texts that it reads together, and
then again what the teacher makes of single texts, which the former disturbs. Every step is a
command of this package; a finished one is skipped, and an interrupted training resumes. Fine-tuning
is that of the study `real_weights`, with three seeds, so that the scores compare with those of the
teacher. `--install` puts the model into the package; its card, README.md, is written by hand.
"""

import argparse
import pathlib
import shutil
from collections.abc import Sequence
from typing import Any

from albert.io import tensorflow_start
from experiments import real_weights, sentence_pairs, study

HERE = pathlib.Path(__file__).resolve().parent
TASKS = ("MRPC", "STS-B", "RTE", "SST-2", "QNLI", "SQuAD")
RATES = (1e-4, 2e-4, 3e-4)  # more than those of models whose layers are not shared
# Texts that may only be used for research; the model is for everyone.
_NON_COMMERCIAL = ("others_07", "others_08")
# Steps on pairs, and minutes of pre-training after them; for weights that knew pairs before.
_ROUNDS, _ROUNDS_AGAIN = ((1000, 6), (1800, 10)), ((1200, 8),)
_RECORDS = {"max_seq_length": 128, "sentence_task": "none", "mask_in_training": True}


def write_sentences(paths: list[pathlib.Path], target: pathlib.Path) -> None:
    """Writes every sentence of the documents as a document of its own."""
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_suffix(".partial")
    with open(partial, "w", encoding="utf-8") as file:
        for path in paths:
            for document in study.read_documents(path):
                file.write(document.replace("\n", "\n\n"))
    partial.rename(target)


def find_texts(data: pathlib.Path) -> list[pathlib.Path]:
    """Returns the files of text that the model may be trained on."""
    source = data / "corpus_large"
    found = (path for kind in ("books", "others") for path in source.glob(f"{kind}_*"))
    return sorted(path for path in found if path.name.split(".")[0] not in _NON_COMMERCIAL)


def make_records(options: study.Options, commands: study.Commands, vocab: pathlib.Path) -> str:
    """Returns the mixture to train on: half single sentences, half pairs of longer texts."""
    folder, paths = options.work / "data", find_texts(options.data)
    sentences = folder / "sentences.txt"
    if not (sentences.exists() or options.dry_run):
        write_sentences(paths, sentences)
    kinds = {
        "single": {"input_file": sentences, "sequence_format": "doc_sentences"},
        "pairs": {
            "input_file": ",".join(map(str, paths)),
            "sequence_format": "segment_pair",
            "short_seq_prob": 0.3,
        },
    }
    for kind, flags in kinds.items():
        flags |= {**_RECORDS, "vocab_file": vocab, "output_file": folder / kind, "num_shards": 2}
        done = folder / f"{kind}.manifest.json"
        commands.run(kind, "create_pretraining_data", flags, done)
    return ",".join(f"{folder}/{kind}-*-of-*:0.5" for kind in kinds)


def train(
    options: study.Options, commands: study.Commands, name: str, flags: dict[str, Any]
) -> pathlib.Path:
    """Pre-trains with the teacher in a folder of this name; returns the averaged weights."""
    folder = options.work / name
    flags = {"flagfile": "recipes/albert_mini.flags", **flags, "output_dir": folder}
    commands.run(name, "run_pretraining", flags, folder / f"{study.AVERAGE}.index")
    return folder / study.AVERAGE


def learn_pairs(
    options: study.Options, commands: study.Commands, start: pathlib.Path, teacher: pathlib.Path,
    name: str, steps: int, seed: int,
) -> pathlib.Path:  # fmt: skip
    """Trains weights to tell the similarity of two texts; returns the prefix of the new weights.

    The teacher's hidden states are learned at the same time, so that they stay.

    Args:
      name: of the folder.
    """
    data, folder = options.work / "data", options.work / name
    files = (data / "pairs_train.csv", data / "pairs_dev.csv")
    if not (options.dry_run or all(file.exists() for file in files)):
        sentence_pairs.write(find_texts(options.data), teacher, *files)
    flags = {
        **{"task_name": "custom", "train_file": files[0], "validation_file": files[1]},
        **{"text_column": "a", "text_pair_column": "b", "label_column": "score"},
        **{"label_type": "regression", "standardize_labels": True, "init_checkpoint": start},
        **{"teacher": teacher, "distill_weights": "0,1,0,1,1", "pooling": "mean"},
        **{"albert_config_file": "configs/albert_mini.json", "do_train": True, "do_eval": True},
        **{"max_seq_length": 128, "train_batch_size": 64, "learning_rate": 3e-4},
        **{"train_step": steps, "warmup_step": 100, "save_checkpoints_steps": 500},
        **{"bias_correction": True, "precision": "bfloat16", "seed": seed},
        "output_dir": folder,
    }
    commands.run(name, "run_classifier", flags, folder / "run.json")
    return folder / "model.ckpt-best"


def join(head: pathlib.Path, encoder: pathlib.Path, folder: pathlib.Path) -> pathlib.Path:
    """Writes a model with the masked-LM head of one checkpoint and the encoder of another.

    Args:
      folder: gets the checkpoint and the files beside `head`.
    """
    from albert.model import checkpoints, model_folder, sources

    target = folder / "model.ckpt-0"
    if not target.with_suffix(".index").exists():
        tensors, trained = (checkpoints.read_tensors(str(path)) for path in (head, encoder))
        folder.mkdir(parents=True, exist_ok=True)
        for path in map(pathlib.Path, sources.files_beside(str(head))):
            shutil.copy(path, folder / path.name)
        model_folder.write_rules(str(folder), sources.rules_beside(str(head)))
        shared = {name: value for name, value in trained.items() if name in tensors}
        checkpoints.write_tensors(str(target), tensors | shared)
    return target


def write_model(
    options: study.Options, commands: study.Commands, checkpoint: pathlib.Path
) -> pathlib.Path:
    """Writes weights as a folder of Hugging Face and sentence-transformers; returns the folder."""
    folder = options.work / "albert_mini"
    flags = {
        "checkpoint": checkpoint,
        "output_dir": folder,
        "head": "masked_lm",
        "weights": "float16",
    }
    commands.run("export", "export_to_huggingface", flags, folder / "config.json")
    if not options.dry_run:
        from albert.model import pooling

        pooling.write(str(folder), pooling.MEAN, 384)
    return folder


def score_mean_vectors(model: pathlib.Path, dev: pathlib.Path) -> dict[str, float]:
    """Returns the correlations of cosines of mean vectors with the scores of STS-B."""
    import numpy as np

    from albert.model import sources
    from albert.serving import embeddings
    from albert.tasks import metrics

    rows = [line.split("\t") for line in dev.read_text("utf-8").splitlines()[1:]]
    extractor = embeddings.Extractor(sources.locate_model(str(model)), (-1,), "mean", 128)
    texts = [row[column] for column in (7, 8) for row in rows]
    vectors = np.stack([x.vectors[0] for x in extractor.extract(texts, 64)])
    first, second = np.split(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), 2)
    labels, cosines = [float(row[9]) for row in rows], (first * second).sum(axis=1)
    return {
        "pearson": round(metrics.pearson(labels, cosines), 4),
        "spearman": round(metrics.spearman(labels, cosines), 4),
    }


def fine_tune(options: study.Options, commands: study.Commands, model: pathlib.Path) -> None:
    """Fine-tunes the model as its teacher in `real_weights`."""
    real_weights.Study(
        real_weights.Options(
            options.data,
            options.work / "tasks",
            HERE / "results" / "albert_mini",
            only=TASKS,
            dry_run=options.dry_run,
            weights=model,
            precision="bfloat16",
            rates=RATES,
        )
    ).run()


def read_options(arguments: Sequence[str] | None) -> tuple[argparse.Namespace, study.Options]:
    """Returns the options; without `arguments` they are those of the process."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--teacher", type=pathlib.Path, required=True, help="folder of the BERT")
    parser.add_argument("--data", type=pathlib.Path, default=HERE.parent.parent / "shared" / "data")
    parser.add_argument("--work", type=pathlib.Path, default=pathlib.Path("work/albert_mini"))
    parser.add_argument("--minutes", type=float, default=90, help="time of pre-training")
    parser.add_argument("--init_checkpoint", help="continue from these weights, not the teacher's")
    parser.add_argument("--seed", type=int, default=1, help="another one to read texts again by")
    parser.add_argument("--install", action="store_true", help="put the model into the package")
    parser.add_argument("--dry_run", action="store_true")
    given = parser.parse_args(arguments)
    return given, study.Options(given.data, given.work, given.work, dry_run=given.dry_run)


def main(arguments: Sequence[str] | None = None) -> None:
    given, options = read_options(arguments)
    tensorflow_start.install()
    commands = study.Commands(options)
    vocab = given.teacher / "vocab.txt"
    flags = {
        "input_file": make_records(options, commands, vocab),
        "teacher": given.teacher,
        "vocab_file": vocab,
        "train_batch_tokens": 2048,
        "group_by_length": True,
        "seed": given.seed,
    }
    first = flags | {"budget_minutes": given.minutes}
    if given.init_checkpoint:
        first |= {"init_checkpoint": given.init_checkpoint, "init_from_teacher": False}
    best = train(options, commands, "model", first)
    rounds = _ROUNDS_AGAIN if given.init_checkpoint else _ROUNDS
    for number, (steps, minutes) in enumerate(rounds):
        seed = given.seed + number + 1
        pairs = learn_pairs(options, commands, best, given.teacher, f"pairs_{number}", steps, seed)
        start = options.work / f"joined_{number}" / "model.ckpt-0"
        if not options.dry_run:
            start = join(best, pairs, start.parent)
        again = {"init_checkpoint": start, "init_from_teacher": False, "budget_minutes": minutes}
        again |= {"learning_rate": 4e-4, "distill_weights": "0,0.5,0,1,1", "seed": seed}
        best = train(options, commands, f"model_{number}", flags | again)
    model = write_model(options, commands, best)
    if not options.dry_run:
        scores = score_mean_vectors(model, options.data / "glue" / "STS-B" / "dev.tsv")
        print(f"mean vectors on STS-B: {scores}", flush=True)
    fine_tune(options, commands, model)
    if given.install and not options.dry_run:
        target = HERE.parent / "albert" / "pretrained" / "albert_mini"
        shutil.copytree(
            model,
            target,
            dirs_exist_ok=True,
            ignore=shutil.ignore_patterns("README.md", "*.manifest.json"),
        )


if __name__ == "__main__":
    main()

"""Makes albert_mini: records, pre-training with a teacher, the shipped folder, and its scores.

    ./experiments/albert_mini.sh --teacher=all-MiniLM-L6-v2 --data=DATA --work=WORK

Every step is a command of this package; a finished one is skipped, and an interrupted training
resumes. Fine-tuning is that of the study `real_weights`, with three seeds, so that the scores
compare with those of the teacher. `--install` puts the model into the package; its card, README.md,
is written by hand.
"""

import argparse
import json
import pathlib
import shutil

from experiments import real_weights, study

HERE = pathlib.Path(__file__).resolve().parent
TASKS = ("MRPC", "STS-B", "RTE", "SST-2", "QNLI")
RATES = (1e-4, 2e-4, 3e-4)  # more than those of models whose layers are not shared
# Texts that may only be used for research; the model is for everyone.
_NON_COMMERCIAL = ("others_07", "others_08")
_RECORDS = {"max_seq_length": 128, "sentence_task": "none", "mask_in_training": True}
# What says to readers of sentence-transformers, and to ours, that a vector is the mean of tokens.
_MODULES = [
    {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
    {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
]
_POOLING = {"word_embedding_dimension": 384, "pooling_mode_mean_tokens": True}


def write_sentences(paths: list[pathlib.Path], target: pathlib.Path) -> None:
    """Writes every sentence of the documents as a document of its own."""
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_suffix(".partial")
    with open(partial, "w", encoding="utf-8") as file:
        for path in paths:
            for document in study.read_documents(path):
                file.write(document.replace("\n", "\n\n"))
    partial.rename(target)


def make_records(options: study.Options, commands: study.Commands, vocab: pathlib.Path) -> str:
    """Returns the mixture to train on: half single sentences, half pairs of longer texts."""
    source, folder = options.data / "corpus_large", options.work / "data"
    found = (path for kind in ("books", "others") for path in source.glob(f"{kind}_*"))
    paths = sorted(path for path in found if path.name.split(".")[0] not in _NON_COMMERCIAL)
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


def write_model(options: study.Options, commands: study.Commands) -> pathlib.Path:
    """Writes the averaged weights as a folder of Hugging Face; returns the folder."""
    folder = options.work / "albert_mini"
    flags = {
        "checkpoint": options.work / "model" / study.AVERAGE,
        "output_dir": folder,
        "head": "masked_lm",
        "weights": "float16",
    }
    commands.run("export", "export_to_huggingface", flags, folder / "config.json")
    if not options.dry_run:
        (folder / "1_Pooling").mkdir(exist_ok=True)
        contents = {"modules.json": _MODULES, "1_Pooling/config.json": _POOLING}
        for name, content in contents.items():
            (folder / name).write_text(json.dumps(content, indent=2) + "\n")
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
    """Fine-tunes the model as its teacher in `real_weights`; for SQuAD as in `two_hours`."""
    real_weights.Study(
        real_weights.Options(
            options.data / "glue",
            options.work / "tasks",
            HERE / "results" / "albert_mini",
            only=TASKS,
            dry_run=options.dry_run,
            weights=model,
            precision="bfloat16",
            rates=RATES,
        )
    ).run()
    squad = json.loads((HERE / "two_hours.json").read_text())["tasks"]["SQuAD"]
    folder = options.work / "tasks" / "SQuAD"
    flags = {
        flag: value.format(data=options.data) if isinstance(value, str) else value
        for flag, value in squad["flags"].items()
    }
    flags |= {"init_checkpoint": model, "output_dir": folder, "num_seeds": 3, "seed": 1}
    commands.run("SQuAD", squad["script"], flags, folder / "seeds.json")


def read_options() -> tuple[argparse.Namespace, study.Options]:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--teacher", type=pathlib.Path, required=True, help="folder of the BERT")
    parser.add_argument("--data", type=pathlib.Path, default=HERE.parent.parent / "shared" / "data")
    parser.add_argument("--work", type=pathlib.Path, default=pathlib.Path("work/albert_mini"))
    parser.add_argument("--minutes", type=float, default=90, help="time of pre-training")
    parser.add_argument("--init_checkpoint", help="continue from these weights, not the teacher's")
    parser.add_argument("--install", action="store_true", help="put the model into the package")
    parser.add_argument("--dry_run", action="store_true")
    given = parser.parse_args()
    return given, study.Options(given.data, given.work, given.work, dry_run=given.dry_run)


def main() -> None:
    given, options = read_options()
    commands = study.Commands(options)
    vocab = given.teacher / "vocab.txt"
    flags = {
        "input_file": make_records(options, commands, vocab),
        "flagfile": "recipes/albert_mini.flags",
        "teacher": given.teacher,
        "vocab_file": vocab,
        "train_batch_tokens": 2048,
        "budget_minutes": given.minutes,
        "output_dir": options.work / "model",
    }
    if given.init_checkpoint:
        flags |= {"init_checkpoint": given.init_checkpoint, "init_from_teacher": False}
    done = options.work / "model" / f"{study.AVERAGE}.index"
    commands.run("pretraining", "run_pretraining", flags, done)
    model = write_model(options, commands)
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

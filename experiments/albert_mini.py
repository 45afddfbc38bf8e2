"""Makes albert_mini: records, pre-training with a teacher, the shipped folder, and its scores.

    ./experiments/albert_mini.sh --teacher=all-MiniLM-L6-v2 --data=DATA --work=WORK

Every step is a command of this package; a finished one is skipped, and an interrupted training
resumes. Fine-tuning is that of the study `real_weights`, with three seeds, so that the scores
compare with those of the teacher. `--install` puts the model into the package and its scores into
`results/albert_mini`; its card, README.md, is written by hand.
"""

import argparse
import functools
import pathlib
import shutil
from collections.abc import Callable, Sequence
from typing import Any

from albert.io import tensorflow_start
from experiments import cloze_questions, real_weights, sentence_pairs, study

HERE = pathlib.Path(__file__).resolve().parent
TASKS = ("MRPC", "STS-B", "RTE", "SST-2", "QNLI", "SQuAD")
RATES = (1e-4, 2e-4, 3e-4)  # more than those of models whose layers are not shared
# Texts that may only be used for research; the model is for everyone.
_NON_COMMERCIAL = ("others_07", "others_08")
# Fractions of the examples: single sentences, two long texts, two sentences that may be alike, and
# questions with passages.
_SHARES = {"single": 0.35, "long": 0.2, "alike": 0.25, "questions": 0.2}
_RECORDS = {"max_seq_length": 128, "sentence_task": "none", "mask_in_training": True}


def find_texts(data: pathlib.Path) -> list[pathlib.Path]:
    """Returns the files of text that the model may be trained on."""
    source = data / "corpus_large"
    found = (path for kind in ("books", "others") for path in source.glob(f"{kind}_*"))
    return sorted(path for path in found if path.name.split(".")[0] not in _NON_COMMERCIAL)


def write_texts(options: study.Options, teacher: pathlib.Path) -> dict[str, dict[str, Any]]:
    """Writes the texts of the records, if they are not there.

    Returns:
      {name of the records: flags of `create_pretraining_data` besides `_RECORDS`}.
    """
    paths, folder = find_texts(options.data), options.work / "data"
    wikipedia = [path for path in paths if path.name.startswith("others")]

    def write_sentences(target: pathlib.Path) -> None:
        documents = (document for path in paths for document in study.read_documents(path))
        study.write_documents(target, (x.replace("\n", "\n\n") for x in documents))

    makers: dict[str, Callable[[pathlib.Path], None]] = {
        "single": write_sentences,
        "alike": functools.partial(sentence_pairs.write, paths, teacher),
        "questions": functools.partial(cloze_questions.write, wikipedia),
    }
    files = {name: folder / f"{name}.txt" for name in makers}
    for name, file in files.items():
        if not (file.exists() or options.dry_run):
            makers[name](file)
    in_pairs = {"sequence_format": "segment_pair", "short_seq_prob": 0}
    return {
        "single": {"input_file": files["single"], "sequence_format": "doc_sentences"},
        "long": {**in_pairs, "input_file": ",".join(map(str, paths)), "short_seq_prob": 0.3},
        "alike": {**in_pairs, "input_file": files["alike"]},
        "questions": {**in_pairs, "input_file": files["questions"]},
    }


def make_records(
    options: study.Options, commands: study.Commands, teacher: pathlib.Path, vocab: pathlib.Path
) -> str:
    """Returns the mixture to train on, of `_SHARES`."""
    folder = options.work / "data"
    for name, flags in write_texts(options, teacher).items():
        flags |= {**_RECORDS, "vocab_file": vocab, "output_file": folder / name, "num_shards": 2}
        commands.run(name, "create_pretraining_data", flags, folder / f"{name}.manifest.json")
    return ",".join(f"{folder}/{name}-*-of-*:{share}" for name, share in _SHARES.items())


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
            options.work / "results",
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
    parser.add_argument("--learning_rate", type=float, help="in place of the recipe's")
    parser.add_argument(
        "--install", action="store_true", help="put model and scores into the project"
    )
    parser.add_argument("--dry_run", action="store_true")
    given = parser.parse_args(arguments)
    return given, study.Options(given.data, given.work, given.work, dry_run=given.dry_run)


def main(arguments: Sequence[str] | None = None) -> None:
    given, options = read_options(arguments)
    tensorflow_start.install()
    commands = study.Commands(options)
    vocab, folder = given.teacher / "vocab.txt", options.work / "model"
    flags = {
        "flagfile": "recipes/albert_mini.flags",
        "input_file": make_records(options, commands, given.teacher, vocab),
        "teacher": given.teacher,
        "vocab_file": vocab,
        "train_batch_tokens": 2048,
        "group_by_length": True,
        "seed": given.seed,
        "budget_minutes": given.minutes,
        "output_dir": folder,
    }
    if given.init_checkpoint:
        flags |= {"init_checkpoint": given.init_checkpoint, "init_from_teacher": False}
    if given.learning_rate:
        flags["learning_rate"] = given.learning_rate
    commands.run("model", "run_pretraining", flags, folder / f"{study.AVERAGE}.index")
    model = write_model(options, commands, folder / study.AVERAGE)
    if not options.dry_run:
        scores = score_mean_vectors(model, options.data / "glue" / "STS-B" / "dev.tsv")
        print(f"mean vectors on STS-B: {scores}", flush=True)
    fine_tune(options, commands, model)
    if given.install and not options.dry_run:
        target = HERE.parent / "albert" / "pretrained" / "albert_mini"
        skipped = shutil.ignore_patterns("README.md", "*.manifest.json")
        shutil.copytree(model, target, dirs_exist_ok=True, ignore=skipped)
        records = HERE / "results" / "albert_mini"
        shutil.copytree(options.work / "results", records, dirs_exist_ok=True)


if __name__ == "__main__":
    main()

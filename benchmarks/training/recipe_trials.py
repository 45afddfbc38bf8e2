"""Trials of other systems' recipes on real data, each with whole commands and small models.

    python -m benchmarks.training.recipe_trials --trial=masks --input_file='corpus/*.txt' \\
        --eval_file=heldout.txt --data_dir=glue --spm_model_file=30k-clean.model

Prints a table of results. Trials:

    masks           masks of the records against masks drawn while training: the same instances as
                    often, masked-LM loss on held-out text.
    full_sentences  full sentences without a sentence task, then RTE from that model.
    distillation    SST-2: students of half the layers with and without their teacher.
    bert            a BERT with random weights from a Hugging Face folder, MRPC, and out again:
                    outputs here and there (--transformers_python).
"""

import json
import os
import statistics
import sys
import tempfile

from absl import flags

from benchmarks import harness

FLAGS = flags.FLAGS
_SMALL = harness.config_file("small")
# Makes a BERT with random weights, or reads one and prints its outputs.
_PEER = """
import json, sys
import numpy as np, torch, transformers
what, folder, values = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
torch.manual_seed(1)
if what == "make":
    transformers.BertModel(transformers.BertConfig(**values)).save_pretrained(folder)
else:
    model = transformers.BertForSequenceClassification.from_pretrained(folder).eval()
    tokenizer = transformers.BertTokenizer.from_pretrained(folder)
    inputs = tokenizer(*values, padding=True, return_tensors="pt")
    with torch.no_grad():
        print(json.dumps(torch.softmax(model(**inputs).logits, -1).tolist()))
"""


def define_flags():
    flags.DEFINE_enum(
        "trial", None, ["masks", "full_sentences", "distillation", "bert"], "Which.", required=True
    )
    flags.DEFINE_string("input_file", None, "Text files: comma-separated globs.")
    flags.DEFINE_string("eval_file", None, "Held-out text.")
    flags.DEFINE_string("data_dir", None, "Folder of the GLUE tasks.")
    flags.DEFINE_string("spm_model_file", None, "SentencePiece model.")
    flags.DEFINE_string("transformers_python", sys.executable, "Interpreter with transformers.")
    flags.DEFINE_string("output_dir", None, "Folder to keep everything in; by default none.")
    flags.DEFINE_integer("num_train_steps", 500, "Steps of pre-training.")
    flags.DEFINE_integer("teacher_steps", 1500, "Steps of the teacher.")
    flags.DEFINE_integer("student_steps", 400, "Steps of each student.")
    flags.DEFINE_float("student_fraction", 1.0, "Share of the examples that students learn from.")
    flags.DEFINE_list("seeds", ["1", "2", "3"], "Seeds of the students.")


def run(script, *switches, **values):
    """Runs a script of the package; returns what it prints."""
    return harness.check_output(harness.command(script, *switches, **values))


def best(folder):
    """The score of the best checkpoint."""
    with open(os.path.join(folder, "best_trial.txt"), encoding="utf-8") as file:
        return float(file.read().split(":")[2])


def make_records(folder, name, input_file, *switches, **values):
    """Path of records of 128 tokens, and what `create_pretraining_data` printed."""
    path = os.path.join(folder, name)
    said = run(
        "create_pretraining_data",
        *switches,
        input_file=input_file,
        output_file=path,
        max_seq_length=128,
        dupe_factor=1,
        spm_model_file=FLAGS.spm_model_file,
        **values,
    )
    return path, said.splitlines()[0]


def pretrain(folder, name, input_file, eval_file, *switches, **values):
    """Folder of a small model that was pre-trained and evaluated at its end."""
    output_dir = os.path.join(folder, name)
    steps = FLAGS.num_train_steps
    run(
        "run_pretraining",
        "do_train",
        "do_eval",
        *switches,
        input_file=input_file,
        eval_input_file=eval_file,
        output_dir=output_dir,
        albert_config_file=_SMALL,
        spm_model_file=FLAGS.spm_model_file,
        max_seq_length=128,
        train_batch_size=64,
        optimizer="adamw",
        learning_rate=1e-3,
        num_train_steps=steps,
        num_warmup_steps=steps // 10,
        save_checkpoints_steps=steps,
        max_eval_steps=40,
        **values,
    )
    return output_dir


def trial_masks(folder):
    """Masked-LM loss on held-out records with the masks of each kind."""
    heldout, _ = make_records(folder, "heldout", FLAGS.eval_file)
    print("| masks | instances | masked_lm_loss | masked_lm_accuracy |\n|---|---|---|---|")
    for name, switches in (("of the records", ()), ("while training", ("mask_in_training",))):
        records, said = make_records(folder, f"records{len(switches)}", FLAGS.input_file, *switches)
        results = harness.last_results(pretrain(folder, f"model{len(switches)}", records, heldout))
        scores = " | ".join(results[key] for key in ("masked_lm_loss", "masked_lm_accuracy"))
        print(f"| {name} | {said.split()[0]} | {scores} |", flush=True)


def trial_full_sentences(folder):
    """Pre-training without a sentence task, and RTE."""
    data_sets = [
        make_records(folder, name, files, "mask_in_training", sequence_format="full_sentences")
        for name, files in (("train", FLAGS.input_file), ("heldout", FLAGS.eval_file))
    ]
    (train, said), (heldout, _) = data_sets
    model = pretrain(folder, "model", train, heldout, sentence_task="none")
    print(said, harness.last_results(model), sep="\n")
    rte = os.path.join(folder, "rte")
    fine_tune(
        "RTE", rte, 300, init_checkpoint=model, spm_model_file=FLAGS.spm_model_file,
        max_seq_length=128, learning_rate=1e-4, save_checkpoints_steps=100,
    )  # fmt: skip
    print("RTE:", harness.last_results(rte), "best", best(rte))


def fine_tune(task_name, output_dir, steps, *switches, **values):
    """Trains and evaluates a GLUE task with batches of 32 and a warm-up of a tenth."""
    run(
        "run_classifier",
        "do_train",
        "do_eval",
        *switches,
        task_name=task_name,
        data_dir=FLAGS.data_dir,
        output_dir=output_dir,
        train_batch_size=32,
        train_step=steps,
        warmup_step=steps // 10,
        **values,
    )


def classify(folder, name, steps, *switches, **values):
    """Best accuracy of a model on SST-2."""
    output_dir = os.path.join(folder, name)
    fine_tune(
        "SST-2",
        output_dir,
        steps,
        *switches,
        spm_model_file=FLAGS.spm_model_file,
        cached_dir=os.path.join(folder, "cache"),
        max_seq_length=64,
        eval_batch_size=64,
        save_checkpoints_steps=steps // 4,
        **{"albert_config_file": _SMALL, "learning_rate": 2e-4, **values},
    )
    return best(output_dir)


def trial_distillation(folder):
    """Students of half the layers, three seeds each."""
    with open(_SMALL, encoding="utf-8") as file:
        config = json.load(file)
    student = os.path.join(folder, "student.json")
    with open(student, "w", encoding="utf-8") as file:
        json.dump({**config, "num_hidden_layers": config["num_hidden_layers"] // 2}, file)
    score = classify(folder, "teacher", FLAGS.teacher_steps, "from_scratch")
    print(f"teacher: {score:.4f} after {FLAGS.teacher_steps} steps\n", flush=True)
    teacher = {"teacher": os.path.join(folder, "teacher")}
    arms = {
        "random start, no teacher": (("from_scratch",), {}),
        "random start, teacher": (("from_scratch",), teacher),
        "copy of the teacher's layers, teacher": (("init_from_teacher",), teacher),
    }
    print("| student | accuracy by seed | mean |\n|---|---|---|")
    for number, (arm, (switches, values)) in enumerate(arms.items()):
        scores = []
        for seed in FLAGS.seeds:
            scores.append(
                classify(
                    folder,
                    f"student{number}_{seed}",
                    FLAGS.student_steps,
                    *switches,
                    **{**values, "albert_config_file": student, "seed": seed},
                    train_fraction=FLAGS.student_fraction,
                )
            )
        listed = ", ".join(f"{score:.4f}" for score in scores)
        print(f"| {arm} | {listed} | {statistics.mean(scores):.4f} |", flush=True)


def peer(*arguments):
    return harness.check_output([FLAGS.transformers_python, "-c", _PEER, *arguments])


def trial_bert(folder):
    """From Hugging Face and back, by way of MRPC."""
    run(
        "train_vocab",
        "wordpiece",
        input_file=FLAGS.input_file,
        output_prefix=os.path.join(folder, "vocab"),
        vocab_size=8000,
    )
    source = os.path.join(folder, "random_bert")
    sizes = {"vocab_size": 8000, "hidden_size": 128, "num_hidden_layers": 2}
    sizes |= {"num_attention_heads": 2, "intermediate_size": 512}
    peer("make", source, json.dumps(sizes))
    model, exported = os.path.join(folder, "mrpc"), os.path.join(folder, "exported")
    fine_tune(
        "MRPC", model, 200, "do_predict", init_checkpoint=source,
        vocab_file=os.path.join(folder, "vocab.txt"),
        max_seq_length=128, learning_rate=1e-4, save_checkpoints_steps=100,
    )  # fmt: skip
    print("MRPC:", harness.last_results(model))
    run("export_to_huggingface", model_dir=model, output_dir=exported, architecture="bert")
    from albert.serving import predictors

    predictor = predictors.TextPredictor(model)
    firsts = ["The cat sat on the mat.", "Shares fell by 3 percent on Monday.", "He said so."]
    seconds = ["A cat was sitting there.", "On Monday the shares lost 3%.", "Nobody came."]
    pairs = zip(firsts, seconds, strict=True)
    ours = [list(p.probabilities.values()) for p in predictor.predict(pairs)]
    theirs = json.loads(peer("read", exported, json.dumps([firsts, seconds])))
    pairs = [(a, b) for row in zip(ours, theirs, strict=True) for a, b in zip(*row, strict=True)]
    print(f"largest difference of probabilities: {max(abs(a - b) for a, b in pairs):.2e}")


def main():
    trial = globals()[f"trial_{FLAGS.trial}"]
    if FLAGS.output_dir:
        os.makedirs(FLAGS.output_dir, exist_ok=True)
        trial(FLAGS.output_dir)
        return
    with tempfile.TemporaryDirectory() as folder:
        trial(folder)


if __name__ == "__main__":
    harness.run(main, define_flags)

"""One fine-tuned classifier, text in and label out, on two cores: ours against its peers.

    python -m benchmarks.serving.latency --spm_model_file=30k-clean.model --data_dir=glue \\
        --peer_python=peer/bin/python
    python -m benchmarks.serving.latency --model_dir=sst2 --data_dir=glue \\
        --peer_python=peer/bin/python \\
        --serving_dirs=sst2_onnx:onnxruntime,sst2_onnx:openvino,sst2_int8:onnxruntime
    python -m benchmarks.serving.latency --spm_model_file=30k-clean.model --data_dir=glue \\
        --exports=float32:onnxruntime,int8:openvino

Every side is a process of its own that answers in turns, all bound to `--cores`. Peers run the same
weights: `export_to_huggingface` writes them, and `peer_sides.py` makes ONNX files, dynamic int8
and NNCF's int8 of that. Without `--model_dir` the weights are random, to which speed is
indifferent, but agreement is not.

A table for each kind of request: median and 99th percentile of milliseconds, the median of the
rounds' ratios to the first side (below 1: faster than that), and of a batch the texts per second.
Single texts are of 32 and of 128 tokens, and real ones of SST-2's and RTE's development sets;
"16 x 128" is a batch; "saturation" all texts of SST-2's development set at once. "first sight" are
texts of many lengths that come one by one, none of which the side has seen: the last columns are
the 99th percentiles of the time over that of the same text the second time, and the other way
round, which is the noise of the machine. At the end the share of
SST-2's texts that each side labels as the first side does, and the largest difference of a
probability.
"""

import dataclasses
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time

import numpy as np
from absl import flags

from benchmarks import harness

FLAGS = flags.FLAGS
_HERE = os.path.dirname(os.path.abspath(__file__))
# Peers by the name of their row, see `peer_sides.PEERS`.
_PEERS = [
    *("transformers eager float32", "transformers compile float32"),
    *("transformers eager bfloat16", "transformers compile bfloat16"),
    *("onnxruntime float32", "onnxruntime int8 dynamic"),
    *("openvino float32", "openvino bfloat16", "openvino int8 nncf", "openvino int8 nncf bfloat16"),
]  # fmt: skip


def define_flags():
    config = harness.config_file("base_v2")
    flags.DEFINE_string("model_dir", None, "Folder of a run of SST-2; else random weights.")
    flags.DEFINE_string("albert_config_file", config, "Sizes of the model with random weights.")
    flags.DEFINE_string("spm_model_file", None, "Vocabulary of the model with random weights.")
    flags.DEFINE_string("data_dir", None, "Folder of the GLUE tasks.", required=True)
    flags.DEFINE_list("precisions", ["float32", "bfloat16"], "Ours, with TensorFlow.")
    flags.DEFINE_list("serving_dirs", [], "Ours, exported: folder:runtime of export_serving.")
    flags.DEFINE_list("exports", [], "Ours, to export as ONNX and to run: precision:runtime.")
    flags.DEFINE_string("peer_python", None, "Python of the peers; without it they are left out.")
    flags.DEFINE_list("peers", _PEERS, "Which of them.")
    flags.DEFINE_list("requests", [], "Which kinds of requests, see the tables; by default all.")
    flags.DEFINE_list("cores", ["0", "1"], "Processor cores that every side is bound to.")
    flags.DEFINE_integer("texts", 50, "Single texts of each kind in a round.")
    flags.DEFINE_integer("saturation", 872, "Texts of SST-2 at once.")
    flags.DEFINE_integer("lengths", 1000, "Texts at first sight.")
    flags.DEFINE_integer("rounds", 5, "Times that each side is measured, in turn.")


# --- what is asked --------------------------------------------------------------------------------


def sentences(name, split):
    """The texts of a GLUE task; both of a pair as one."""
    from albert.tasks import glue

    examples = glue.get_task(name).examples(FLAGS.data_dir, split)
    return [" ".join(x for x in (e.text_a, e.text_b) if x) for e in examples]


def text_of(count, tokenizer, texts, start):
    """Words of real texts that are `count` tokens with [CLS] and [SEP]."""
    chosen_words, words = [], " ".join(texts[start:] + texts[:start]).split()
    for word in words:
        if len(tokenizer.encode(" ".join([*chosen_words, word]))) <= count - 2:
            chosen_words.append(word)
        if len(tokenizer.encode(" ".join(chosen_words))) == count - 2:
            return " ".join(chosen_words)
    raise SystemExit(f"no text of {count} tokens in {FLAGS.data_dir}")


def make_requests(tokenizer):
    """{kind of request: list of batches of texts}."""
    rng = np.random.default_rng(1)
    sst, rte = sentences("SST-2", "dev"), sentences("RTE", "dev")

    def chosen(texts):
        return [[texts[i]] for i in rng.permutation(len(texts))[: FLAGS.texts]]

    of_128 = [text_of(128, tokenizer, sst, start) for start in range(0, 160, 10)]
    requests = {
        "32 tokens": [[text_of(32, tokenizer, sst, 0)]] * FLAGS.texts,
        "128 tokens": [of_128[:1]] * FLAGS.texts,
        "SST-2": chosen(sst),
        "RTE": chosen(rte),
        "16 x 128": [of_128] * 2,
        "saturation": [sst[: FLAGS.saturation]],
    }
    words = np.array(" ".join(sst).split())
    counts = rng.integers(2, 90, FLAGS.lengths)
    sights = [[" ".join(rng.choice(words, count))] for count in counts]
    requests["first sight"] = sights
    unknown = set(FLAGS.requests) - set(requests)
    if unknown:
        raise SystemExit(f"--requests: {unknown}; there are {', '.join(requests)}")
    selection = {name: x for name, x in requests.items() if name in (FLAGS.requests or requests)}
    return selection | {"agreement": [sst[i : i + 32] for i in range(0, len(sst), 32)]}


# --- who is asked ---------------------------------------------------------------------------------


class Side:
    """A process that answers, see `peer_sides.answer_commands`."""

    def __init__(self, name, command):
        self.name = name
        environment = {**harness.environment(), "OMP_NUM_THREADS": str(len(FLAGS.cores))}
        environment |= {"TF_CPP_MIN_LOG_LEVEL": "2", "CUDA_VISIBLE_DEVICES": ""}
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        self._line()  # Not two that start at a time: memory, and compilers.

    def _line(self):
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"{self.name} ended with {self._process.wait()}")
        return line

    def ask(self, name, first=0, last=None, timed=True):
        """Seconds of each batch; not timed, the probabilities of each text."""
        command = {"name": name, "first": first, "last": last, "timed": timed}
        print(json.dumps(command), file=self._process.stdin, flush=True)
        return np.array(json.loads(self._line()))

    def end(self):
        self._process.kill()
        self._process.wait()


def random_model(folder):
    """Writes the folder of a run that has not learned anything: of two labels, for single texts."""
    from albert.model import checkpoints, encoder, heads, sources
    from albert.tasks import custom, glue, kinds
    from albert.text import text_rules

    config = encoder.AlbertConfig.from_json_file(FLAGS.albert_config_file)
    source = sources.Source("", None, FLAGS.spm_model_file, None, text_rules.TextRules(True))
    row = glue.get_task("SST-2")
    settings = custom.settings_of(row, 512, 0)
    kinds.write_folder(folder, glue.KIND, config, source, settings)
    model, rng = heads.ClassifierModel(config, 2, seed=1), np.random.default_rng(2)
    for variable in model.variables:
        if variable.shape.rank == 1:  # Zeros and ones might be left out of the computation.
            variable.assign_add(rng.normal(size=variable.shape, scale=0.02))
    checkpoints.save(os.path.join(folder, "model.ckpt-best"), model)


def export(model, folder, precision):
    """Exports a model as ONNX and returns the folder; int8 is calibrated with texts of SST-2."""
    output = os.path.join(folder, f"onnx_{precision}")
    values = {"model_dir": model, "output_dir": output, "precision": precision}
    if precision != "float32":  # The weights may be random: agreement is printed, not demanded.
        values |= {"min_agreement": 0, "max_metric_drop": 100}
        for flag, split, count in (("calibration", "train", 300), ("check", "dev", 32)):
            path = os.path.join(FLAGS.data_dir, "SST-2", f"{split}.tsv")
            with open(path, encoding="utf-8") as file:
                lines = list(itertools.islice(file, 1 + count))
            values[f"{flag}_file"] = os.path.join(folder, f"{flag}.tsv")
            with open(values[f"{flag}_file"], "w", encoding="utf-8") as file:
                file.writelines(lines)
        if "int8" not in precision:
            del values["calibration_file"]
    harness.check_output(harness.command("export_serving", **values))
    return output


def make_sides(model, folder, requests_file):
    """All sides, ready."""
    own = [sys.executable, "-m", "benchmarks.serving.own_side"]
    peer = [FLAGS.peer_python, os.path.join(_HERE, "peer_sides.py")]
    threads = str(len(FLAGS.cores))
    commands = {
        f"albert tensorflow {precision}": [*own, model, precision, "auto", threads]
        for precision in FLAGS.precisions
    }
    for each in FLAGS.serving_dirs:
        path, _, runtime = each.rpartition(":")
        commands[f"albert {each}"] = [*own, path, "exported", runtime, threads]
    exports = [each.split(":") for each in FLAGS.exports]
    paths = {precision: export(model, folder, precision) for precision in dict(exports)}
    for precision, runtime in exports:
        command = [*own, paths[precision], "exported", runtime, threads]
        commands[f"albert {runtime} {precision}"] = command
    if FLAGS.peer_python:
        exported = os.path.join(folder, "exported")
        os.mkdir(exported)
        of_transformers = os.path.join(folder, "transformers")
        command = [sys.executable, "-m", "albert.export_to_huggingface", f"--model_dir={model}"]
        subprocess.run([*command, f"--output_dir={of_transformers}"], check=True)
        texts = os.path.join(folder, "calibration.json")
        with open(texts, "w", encoding="utf-8") as file:
            json.dump(sentences("SST-2", "train")[:300], file)
        command = [*peer, "export", of_transformers, exported, texts, *FLAGS.peers]
        subprocess.run(command, check=True, env=harness.environment())
        for name in FLAGS.peers:
            commands[name] = [*peer, "answer", name, of_transformers, exported, threads]
    return [Side(name, [*command, requests_file]) for name, command in commands.items()]


# --- measuring ------------------------------------------------------------------------------------


@dataclasses.dataclass
class Times:
    """Seconds of one side at one kind of request, an array of each round."""

    rounds: list

    @property
    def milliseconds(self):
        return np.concatenate(self.rounds) * 1e3

    def ratio(self, other):
        """Median of the rounds' ratios of medians."""
        pairs = zip(self.rounds, other.rounds, strict=True)
        return np.median([np.median(ours) / np.median(theirs) for ours, theirs in pairs])


def measure(sides, name):
    """{side: `Times`}; in turns, in another order each round."""
    rng, times = np.random.default_rng(3), {side.name: Times([]) for side in sides}
    for side in sides:
        side.ask(name)  # all shapes once, untimed
    for _ in range(FLAGS.rounds):
        for i in rng.permutation(len(sides)):
            times[sides[i].name].rounds.append(sides[i].ask(name))
    return times


def first_sight(sides, requests):
    """{side: `Times`} of two rounds: of texts that come for the first time, and once more."""
    times_of_sides, step = {side.name: Times([[], []]) for side in sides}, 50
    for again in (0, 1):
        for first in range(0, len(requests["first sight"]), step):
            for side in sides:
                times_of_sides[side.name].rounds[again].extend(
                    side.ask("first sight", first, first + step)
                )
    return {
        name: Times([np.array(x) for x in times.rounds]) for name, times in times_of_sides.items()
    }


def print_table(name, times_of_sides, texts):
    print(f"\n{name}")
    print(f"{'':45}{'median ms':>10}{'p99 ms':>10}{'ratio':>8}", end="")
    sights = f"{'p99 first/again':>17}{'p99 again/first':>17}"
    print(sights if name == "first sight" else f"{'texts/s':>17}")
    first = next(iter(times_of_sides.values()))
    for side, times in times_of_sides.items():
        last = f"{texts / np.median(times.milliseconds) * 1e3:17.1f}"
        if name == "first sight":
            first_again = times.rounds[0] / times.rounds[1]
            last = "".join(f"{np.percentile(x, 99):17.2f}" for x in (first_again, 1 / first_again))
        values = np.median(times.milliseconds), np.percentile(times.milliseconds, 99)
        print(f"{side:45}{values[0]:10.1f}{values[1]:10.1f}{times.ratio(first):8.2f}{last}")
    sys.stdout.flush()
    medians = {side: np.median(times.milliseconds) for side, times in times_of_sides.items()}
    harness.record(name, medians, "ms")


def print_agreement(sides):
    print(f"\n{'agreement':45}{'same label':>12}{'largest difference':>20}")
    reference = None
    for side in sides:
        probabilities = side.ask("agreement", timed=False)
        reference = probabilities if reference is None else reference
        same = np.mean(probabilities.argmax(1) == reference.argmax(1))
        print(f"{side.name:45}{same:12.2%}{np.abs(probabilities - reference).max():20.6f}")


def main():
    os.sched_setaffinity(0, {int(core) for core in FLAGS.cores})  # also of what is started here
    from albert.serving import inference, predictors

    with tempfile.TemporaryDirectory() as folder:
        model = FLAGS.model_dir
        if model is None:
            model = os.path.join(folder, "model")
            random_model(model)
        tokenizer = predictors.TextPredictor(inference.find(model)).tokenizer
        requests = make_requests(tokenizer)
        requests_file = os.path.join(folder, "requests.json")
        with open(requests_file, "w", encoding="utf-8") as file:
            json.dump(requests, file)
        sides = make_sides(model, folder, requests_file)
        print(f"{time.strftime('%Y-%m-%d')}, cores {','.join(FLAGS.cores)}, {FLAGS.rounds} rounds")
        try:
            if "first sight" in requests:  # before anything is warm
                print_table("first sight", first_sight(sides, requests), 1)
            for name in requests:
                if name not in ("first sight", "agreement"):
                    print_table(name, measure(sides, name), len(requests[name][0]))
            print_agreement(sides)
        finally:
            for side in sides:
                side.end()


if __name__ == "__main__":
    harness.run(main, define_flags)

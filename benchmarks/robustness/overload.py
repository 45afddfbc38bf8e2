"""A server at twice its capacity, with slow, cut-off and hostile clients: answers and memory.

    python -m benchmarks.robustness.overload --model_dir=sst2_onnx --seconds=3600 \\
        --input_file=glue/SST-2/dev.tsv

Asks each text once before anything else runs, which gives the right answers, and measures the
capacity with many clients. Then it sends twice as many texts per second for the given time, in the
three forms of request. Ends with an error if an answer is wrong, a refusal names no time to try
again, or memory grows by more than 5% from the second to the last quarter of the time.

Rows of one batch differ by rounding, so a probability may differ by 0.001. Clients take time of the
same cores.
"""

import asyncio
import itertools
import json
import signal
import sys

from absl import flags

from albert.io import tables
from benchmarks import harness
from benchmarks.serving import load, server_process
from tests.support import overload

FLAGS = flags.FLAGS
_CLIENTS = 128  # enough to fill batches, as in the overload
_TOLERANCE = 0.001
_MEMORY = 0.05


def define_flags():
    flags.DEFINE_string("model_dir", None, "Folder of a classifier of single texts.", required=True)
    flags.DEFINE_string("input_file", None, "Texts: .tsv, .csv or .jsonl.", required=True)
    flags.DEFINE_string("text_column", "sentence", "Column of the texts.")
    flags.DEFINE_float("seconds", 120.0, "Seconds at twice the capacity.")
    flags.DEFINE_integer("texts", 300, "How many texts, at most.")
    flags.DEFINE_multi_string("server_flags", [], "Further flags of the server.")


async def right_answers(url, texts):
    async with load.session() as session:
        replies = [await load.ask(session, url, text) for text in texts]
    return [json.loads(reply)["probabilities"] for _, _, reply in replies]


def is_near(answer, right):
    """Whether the probabilities of an answer are the right ones, up to `_TOLERANCE`."""
    return answer.keys() == right.keys() and all(
        abs(answer[name] - right[name]) <= _TOLERANCE for name in right
    )


def make_request(text, right, form):
    """`overload.Request` in one of three forms.

    Probabilities decide, because the better of two equal labels depends on rounding.
    """
    if form == 0:
        return overload.Request(
            "/predict",
            {"text": text},
            lambda reply: is_near(json.loads(reply)["probabilities"], right),
        )
    if form == 1:
        return overload.Request(
            "/v1/models/model:predict",
            {"instances": [text]},
            lambda reply: is_near(json.loads(reply)["predictions"][0]["probabilities"], right),
        )
    inputs = {"inputs": [overload.tensor(data=[text])], "outputs": [{"name": "probabilities"}]}

    def is_right(reply):
        (output,) = json.loads(reply)["outputs"]
        return is_near(dict(zip(right, output["data"], strict=True)), right)

    return overload.Request("/v2/models/model/infer", inputs, is_right)


def main():
    rows = tables.read_file(FLAGS.input_file, "input_file")
    texts = [row[FLAGS.text_column] for _, row in itertools.islice(rows, FLAGS.texts)]
    # The name that the requests use.
    flags_of_server = ["--model_name=model", *FLAGS.server_flags]
    server = server_process.Process(FLAGS.model_dir, flags_of_server)
    try:
        answers = asyncio.run(right_answers(server.url, texts))
        capacity = asyncio.run(load.load(server.url, texts, _CLIENTS, 20.0))
        load.say(f"capacity, {_CLIENTS} clients", capacity.row())
        requests = [
            make_request(text, right, form)
            for form in range(3)
            for text, right in zip(texts, answers, strict=True)
        ]
        run = overload.overload(
            server.process,
            server.port,
            FLAGS.seconds,
            2 * len(capacity.seconds) / capacity.whole,
            lambda number: requests[number % len(requests)],
        )
        outcome = asyncio.run(run)
        load.say("statuses", outcome.statuses)
        load.say(
            "memory, last quarter to second", f"{outcome.growth():.4f} of {max(outcome.memory)} KiB"
        )
        server.process.send_signal(signal.SIGTERM)
        load.say("exit status", server.process.wait(60))
    finally:
        server.process.kill()
    log = server.log()
    load.say("log", f"{len(log.splitlines())} lines, {log.count('Traceback')} tracebacks")
    wrong = [*outcome.wrong, *(outcome.statuses.keys() - overload.STATUSES)]
    if wrong or "Traceback" in log or outcome.growth() > 1 + _MEMORY:
        sys.exit(f"failed: {len(wrong)} wrong answers, the first: {wrong[:5]}\n{log[-2000:]}")


if __name__ == "__main__":
    harness.run(main, define_flags)

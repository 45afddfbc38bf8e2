"""The peers of `latency`, each a process that answers commands; needs no other file.

    python peer_sides.py export transformers_folder output_folder texts.json name...
    python peer_sides.py answer name transformers_folder exported_folder threads batches.json

`export` writes what ONNX Runtime and OpenVINO run of a transformers folder, as far as the named
`PEERS` need it: the model as ONNX, its dynamic int8 of ONNX Runtime, and the static int8 of NNCF,
calibrated with the texts. `answer`
computes, for each line of standard input, see `answer_commands`, with one of `PEERS`.
"""

import json
import os
import sys
import time

import numpy as np

BATCH_SIZE = 32  # most texts that are computed together
_NAMES = ("input_ids", "attention_mask", "token_type_ids")


def answer_commands(predict, batches_file):
    """Answers lines of JSON on standard input until it ends.

    ``{"name": batches, "first": i, "last": j, "timed": true}`` computes those batches of texts, one
    after another, and answers with a list of seconds, one for each; not timed, with the
    probabilities of each text.

    Args:
      predict: ``texts -> probabilities [N, labels]``.
      batches_file: JSON, {name: list of lists of texts}.
    """
    # Libraries also print to standard output.
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    with open(batches_file, encoding="utf-8") as file:
        batches = json.load(file)
    print("ready", file=replies, flush=True)
    for line in sys.stdin:
        command = json.loads(line)
        seconds, rows = [], []
        for texts in batches[command["name"]][command["first"] : command["last"]]:
            started = time.perf_counter()
            probabilities = predict(texts)
            seconds.append(time.perf_counter() - started)
            rows.extend(np.asarray(probabilities, float).tolist())
        print(json.dumps(seconds if command["timed"] else rows), file=replies, flush=True)


def _wrapped(folder, dtype="float32"):
    """(tokenizer, torch module of the three inputs that returns logits)."""
    import torch
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder)
    model = model.to(getattr(torch, dtype)).eval()

    class Logits(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, input_ids, attention_mask, token_type_ids):
            return self.model(input_ids, attention_mask, token_type_ids).logits

    return tokenizer, Logits().eval()


def _arrays(tokenizer, texts):
    """int64 inputs by name, padded to the longest of the texts."""
    encoding = tokenizer(texts, padding=True, truncation=True, max_length=512, return_tensors="np")
    ids = encoding["input_ids"].astype(np.int64)
    zeros = np.zeros_like(ids)
    return {
        "input_ids": ids,
        "attention_mask": encoding["attention_mask"].astype(np.int64),
        "token_type_ids": encoding.get("token_type_ids", zeros).astype(np.int64),
    }


def _softmax(logits):
    powers = np.exp(logits - logits.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


# --- export ---------------------------------------------------------------------------------------


def export(folder, output, texts_file, *names):
    files = {argument for name in names for argument in PEERS[name][1:]}
    if not any(name.startswith("model.") for name in files):
        return
    import torch

    tokenizer, model = _wrapped(folder)
    with open(texts_file, encoding="utf-8") as file:
        texts = json.load(file)
    example = [torch.tensor(x) for x in _arrays(tokenizer, texts[:2]).values()]
    axes = {name: {0: "batch", 1: "length"} for name in _NAMES} | {"logits": {0: "batch"}}
    path = os.path.join(output, "model.onnx")
    torch.onnx.export(
        model, tuple(example), path, input_names=list(_NAMES), output_names=["logits"],
        dynamic_axes=axes, opset_version=17, dynamo=False,
    )  # fmt: skip
    if "model.int8.onnx" in files:
        from onnxruntime import quantization

        quantization.quantize_dynamic(
            path, os.path.join(output, "model.int8.onnx"), weight_type=quantization.QuantType.QInt8
        )
    if "model.int8.xml" in files:
        import nncf
        import openvino

        data = nncf.Dataset(texts, lambda text: _arrays(tokenizer, [text]))
        quantized = nncf.quantize(
            openvino.Core().read_model(path),
            data,
            model_type=nncf.ModelType.TRANSFORMER,
            subset_size=len(texts),
        )
        openvino.save_model(quantized, os.path.join(output, "model.int8.xml"))


# --- the peers ------------------------------------------------------------------------------------


def _torch(folder, exported, threads, dtype, how):
    import torch

    torch.set_num_threads(threads)
    tokenizer, model = _wrapped(folder, dtype)
    call = torch.compile(model, dynamic=True) if how == "compile" else model

    def predict(texts):
        with torch.inference_mode():
            inputs = [torch.from_numpy(x) for x in _arrays(tokenizer, texts).values()]
            return _softmax(call(*inputs).float().numpy())

    return predict


def _onnxruntime(folder, exported, threads, name):
    import onnxruntime
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(os.path.join(exported, name), options)
    names = [item.name for item in session.get_inputs()]

    def predict(texts):
        inputs = _arrays(tokenizer, texts)
        return _softmax(session.run(None, {name: inputs[name] for name in names})[0])

    return predict


def _openvino(folder, exported, threads, name, precision):
    import openvino
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    settings = {
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": precision,
        "INFERENCE_NUM_THREADS": threads,
    }
    model = openvino.Core().compile_model(os.path.join(exported, name), "CPU", settings)
    request = model.create_infer_request()
    names = [item.get_any_name() for item in model.inputs]

    def predict(texts):
        inputs = _arrays(tokenizer, texts)
        return _softmax(next(iter(request.infer({n: inputs[n] for n in names}).values())))

    return predict


# Name: what makes ``texts -> probabilities`` of a transformers folder, what `export` wrote, the
# number of threads, and further arguments.
PEERS = {
    "transformers eager float32": (_torch, "float32", "eager"),
    "transformers compile float32": (_torch, "float32", "compile"),
    "transformers eager bfloat16": (_torch, "bfloat16", "eager"),
    "transformers compile bfloat16": (_torch, "bfloat16", "compile"),
    "onnxruntime float32": (_onnxruntime, "model.onnx"),
    "onnxruntime int8 dynamic": (_onnxruntime, "model.int8.onnx"),
    "openvino float32": (_openvino, "model.onnx", "f32"),
    "openvino bfloat16": (_openvino, "model.onnx", "bf16"),
    "openvino int8 nncf": (_openvino, "model.int8.xml", "f32"),
    "openvino int8 nncf bfloat16": (_openvino, "model.int8.xml", "bf16"),
}


def answer(name, folder, exported, threads, batches_file):
    make, *arguments = PEERS[name]
    compute = make(folder, exported, int(threads), *arguments)

    def predict(texts):
        """In batches as they come, each padded to its longest."""
        parts = [texts[i : i + BATCH_SIZE] for i in range(0, len(texts), BATCH_SIZE)]
        return np.concatenate([compute(part) for part in parts])

    answer_commands(predict, batches_file)


if __name__ == "__main__":
    {"export": export, "answer": answer}[sys.argv[1]](*sys.argv[2:])

"""Runs in a Python with torch and transformers: what they make of our folders, and we of theirs.

Answers each line of standard input, a list of requests as JSON, with a line of answers.

Each request is an object with the key ``do``: ``load`` (a model of ours), ``make`` (a random model
of theirs), ``tokenize``, ``convert`` (weights that torch wrote) or ``train`` (a classifier).
"""

import json
import os
import sys

import numpy as np
import safetensors.torch
import torch
import transformers

ALL_OUTPUTS = (
    "last_hidden_state", "pooler_output", "logits", "prediction_logits", "order_logits",
    "start_logits", "end_logits",
)  # fmt: skip
# What ALBERT and BERT call the scores of two sentences.
ORDER = ("sop_logits", "seq_relationship_logits")


def compute(model, request):
    """Saves the outputs for the arrays of ``inputs`` as ``outputs``."""
    arrays = np.load(request["inputs"])
    names = {"input_ids": "input_ids", "input_mask": "attention_mask"}
    names["segment_ids"] = "token_type_ids"
    features = {names[name]: torch.tensor(arrays[name]).long() for name in arrays.files}
    with torch.no_grad():
        outputs = model.eval()(**features)
    outputs = {"order_logits" if name in ORDER else name: x for name, x in outputs.items()}
    found = {name: outputs[name].numpy() for name in ALL_OUTPUTS if name in outputs}
    np.savez(request["outputs"], **found)


def load(request):
    model, info = getattr(transformers, request["class"]).from_pretrained(
        request["folder"], output_loading_info=True
    )
    compute(model, request)
    faults = ("missing_keys", "unexpected_keys", "mismatched_keys", "error_msgs")
    return {
        **{name: sorted(map(str, info.get(name, ()))) for name in faults},
        "labels": {str(i): name for i, name in model.config.id2label.items()},
    }


def make(request):
    torch.manual_seed(1)
    model_class = getattr(transformers, request["class"])
    model = model_class(model_class.config_class(**request["config"]))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    model.save_pretrained(request["folder"])
    compute(model, request)
    return {}


def tokenize(request):
    answers = {}
    for name in request["classes"]:
        tokenizer = getattr(transformers, name).from_pretrained(request["folder"])
        encoded = tokenizer(request["texts"])
        answers[name] = {
            "ids": encoded["input_ids"],
            "pair": dict(tokenizer(*request["texts"][:2])),
            "class": type(tokenizer).__name__,
        }
        if "save" in request:
            tokenizer.save_pretrained(request["save"])
    return answers


def convert(request):
    """Saves the weights of a state dictionary whose names begin with a prefix, without it."""
    weights = torch.load(request["weights"], map_location="cpu", weights_only=True)
    start = request["prefix"]
    named = {
        n.removeprefix(start): x.contiguous() for n, x in weights.items() if n.startswith(start)
    }
    safetensors.torch.save_file(named, os.path.join(request["folder"], "model.safetensors"))
    return {}


def train(request):
    """Trains a classifier of the mean of all tokens, without dropout, by the reference's Adam.

    ``inputs`` has batches [steps, B, S] and ``label_ids`` [steps, B], and the head's first weights.
    Writes ``losses`` and ``norms`` (of all gradients, before they are clipped) as ``outputs``.
    """
    arrays = np.load(request["inputs"])
    model = transformers.BertModel.from_pretrained(
        request["folder"], add_pooling_layer=False, attn_implementation="eager"
    ).eval()  # without dropout
    head = torch.nn.Linear(*arrays["output_weights"].T.shape)
    with torch.no_grad():
        head.weight.copy_(torch.tensor(arrays["output_weights"]))
        head.bias.copy_(torch.tensor(arrays["output_bias"]))
    named = [*model.named_parameters(), *head.named_parameters()]
    state = [(n, p, *(torch.zeros_like(p.detach()) for _ in range(3))) for n, p in named]
    steps, losses, norms = len(arrays["label_ids"]), [], []
    for step in range(steps):
        ids, mask, segments, labels = (
            torch.tensor(arrays[name][step]).long()
            for name in ("input_ids", "input_mask", "segment_ids", "label_ids")
        )
        hidden = model(input_ids=ids, attention_mask=mask, token_type_ids=segments)[0]
        weights = mask[:, :, None].float()
        loss = torch.nn.functional.cross_entropy(
            head((hidden * weights).sum(1) / weights.sum(1)), labels
        )
        loss.backward()
        every = [torch.linalg.vector_norm(p.grad, dtype=torch.float64) for _, p, *_ in state]
        norm = torch.linalg.vector_norm(torch.stack(every))
        losses.append(loss.item())
        norms.append(norm.item())
        warm, rate = request["warmup"], request["rate"]
        rate *= step / warm if step < warm else 1 - step / steps
        with torch.no_grad():
            for name, parameter, mean, square, update in state:
                gradient = parameter.grad.div_(max(1.0, norm.item()))
                mean.lerp_(gradient, 0.1)
                square.mul_(0.999).addcmul_(gradient, gradient, value=0.001)
                torch.sqrt(square, out=update).add_(1e-6)  # without new memory, which is slow
                torch.div(mean, update, out=update)
                if not name.endswith("bias") and "LayerNorm" not in name:
                    update.add_(parameter, alpha=0.01)
                parameter.sub_(update, alpha=rate)
                gradient.zero_()
    np.savez(request["outputs"], losses=losses, norms=norms)
    return {}


def main():
    work = {"load": load, "make": make, "tokenize": tokenize, "convert": convert, "train": train}
    with os.fdopen(os.dup(1), "w") as output:
        os.dup2(2, 1)  # what the libraries print is no answer
        for line in sys.stdin:
            answers = [work[request["do"]](request) for request in json.loads(line)]
            print(json.dumps(answers), file=output, flush=True)


if __name__ == "__main__":
    main()

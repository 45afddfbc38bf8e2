"""Fine-tunes a BERT with transformers, for `real_weights.py`; runs in a Python with torch.

Its one argument is JSON. The head is a dense layer on the mean of all tokens, after dropout, and
the optimizer is torch's AdamW, with the schedule, clipping and decay of the other side. Batches
are padded to their longest text.
"""

import json
import math
import pathlib
import random
import sys

import torch
import transformers


def read(path):
    """Returns [(texts, label)] of a file of examples."""
    return [tuple(json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]


class Model(torch.nn.Module):
    """BERT with a head on the mean of all tokens."""

    def __init__(self, weights, outputs):
        super().__init__()
        self.bert = transformers.BertModel.from_pretrained(weights, add_pooling_layer=False)
        self.dropout = torch.nn.Dropout(0.1)
        self.output = torch.nn.Linear(self.bert.config.hidden_size, outputs)
        torch.nn.init.trunc_normal_(self.output.weight, std=0.02, a=-0.04, b=0.04)
        torch.nn.init.zeros_(self.output.bias)

    def forward(self, inputs):
        hidden = self.bert(**inputs)[0]
        mask = inputs["attention_mask"][:, :, None].float()
        return self.output(self.dropout((hidden * mask).sum(1) / mask.sum(1)))


def optimizer_of(model, rate):
    """Returns AdamW, which does not decay biases and norms."""
    decays, others = [], []
    for name, parameter in model.named_parameters():
        (others if name.endswith("bias") or "LayerNorm" in name else decays).append(parameter)
    groups = [{"params": decays, "weight_decay": 0.01}, {"params": others, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=rate, eps=1e-6)


def main(request):
    """Trains, predicts the dev data, and writes labels and predictions."""
    random.seed(request["seed"])
    torch.manual_seed(request["seed"])
    folder = pathlib.Path(request["examples"])
    train, dev = read(folder / "train.jsonl"), read(folder / "dev.jsonl")
    tokenizer = transformers.AutoTokenizer.from_pretrained(request["weights"])
    classes = request["labels"]
    model = Model(request["weights"], classes or 1)
    mean, deviation = 0.0, 1.0
    if not classes:
        values = [label for _, label in train]
        mean = sum(values) / len(values)
        deviation = math.sqrt(sum((v - mean) ** 2 for v in values) / len(values))

    def inputs_of(examples):
        texts = list(zip(*(texts for texts, _ in examples), strict=True))
        return tokenizer(
            *map(list, texts), padding=True, truncation=True, max_length=request["length"],
            return_tensors="pt",
        )  # fmt: skip

    def batches(count):
        waiting = []
        for _ in range(count):
            while len(waiting) < request["batch"]:
                waiting += random.sample(train, len(train))
            yield waiting[: request["batch"]]
            waiting = waiting[request["batch"] :]

    optimizer = optimizer_of(model, request["rate"])
    steps, warmup = request["steps"], request["warmup"]
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: step / warmup if step < warmup else 1 - step / steps
    )
    model.train()
    for batch in batches(steps):
        scores = model(inputs_of(batch))
        labels = torch.tensor([label for _, label in batch])
        if classes:
            loss = torch.nn.functional.cross_entropy(scores, labels)
        else:
            loss = torch.nn.functional.mse_loss(scores[:, 0], (labels.float() - mean) / deviation)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
    model.eval()
    predictions = []
    with torch.no_grad():
        for first in range(0, len(dev), 64):
            scores = model(inputs_of(dev[first : first + 64]))
            found = scores.argmax(-1) if classes else scores[:, 0] * deviation + mean
            predictions += found.tolist()
    answer = {"labels": [label for _, label in dev], "predictions": predictions}
    pathlib.Path(request["output"]).write_text(json.dumps(answer), encoding="utf-8")


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))

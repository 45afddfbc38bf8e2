"""The transformers side of `training_step.py`; runs in a virtual environment of its own.

    python peer_transformers.py batches.npz config.json train|infer float32|bfloat16 eager|compile

A folder of transformers may take the place of ``config.json``; weights are random in any case. For
each line of standard input it computes all batches once and prints how many seconds that took.
"""

import json
import os
import sys
import time

import numpy as np
import torch
import transformers


def _config(path):
    if os.path.isdir(path):
        return transformers.AutoConfig.from_pretrained(path, num_labels=2)
    with open(path, encoding="utf-8") as file:
        values = json.load(file)
    values["hidden_act"] = "gelu_new"  # the tanh approximation
    return transformers.AlbertConfig(**values, num_labels=2)


def main():
    path, config_path, mode, dtype, how = sys.argv[1:]
    torch.manual_seed(0)
    model = transformers.AutoModelForSequenceClassification.from_config(_config(config_path))
    model.train(mode == "train")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    call = torch.compile(model) if how == "compile" else model
    arrays = np.load(path)
    count = len([name for name in arrays.files if name.startswith("input_ids")])
    batches = [
        {
            "input_ids": torch.tensor(arrays[f"input_ids_{i}"]).long(),
            "attention_mask": torch.tensor(arrays[f"input_mask_{i}"]).long(),
            "token_type_ids": torch.tensor(arrays[f"segment_ids_{i}"]).long(),
            "labels": torch.tensor(arrays[f"label_ids_{i}"]).long(),
        }
        for i in range(count)
    ]
    # Each in its fastest way: training keeps float32 weights, inference does not need them.
    if dtype == "bfloat16" and mode == "infer":
        model = model.to(torch.bfloat16)
    lower = torch.autocast("cpu", torch.bfloat16, dtype == "bfloat16" and mode == "train")

    def step(batch):
        if mode == "infer":
            with torch.inference_mode():
                return call(**batch).logits.sum().item()
        with lower:
            loss = call(**batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return loss.item()

    for _ in sys.stdin:
        started = time.perf_counter()
        for batch in batches:
            step(batch)
        print(time.perf_counter() - started, flush=True)


if __name__ == "__main__":
    main()

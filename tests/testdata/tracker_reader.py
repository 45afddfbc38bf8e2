"""Prints the runs that a tracker holds, as JSON; arguments: tracker and output.

Trackio keeps its folder for the life of a process. Each run is an object with the keys id, name,
state, settings ({name: value}), curves ({name: {step: value}}) and scores, which Trackio has among
its curves.
"""

import glob
import json
import os
import struct
import sys


def read_mlflow(output):
    import mlflow

    client = mlflow.MlflowClient(output if "://" in output else f"sqlite:///{output}")
    ids = [client.get_experiment_by_name("albert").experiment_id]
    for run in client.search_runs(ids):
        curves = {}
        for name in run.data.metrics:
            history = client.get_metric_history(run.info.run_id, name)
            curves[name] = {point.step: point.value for point in history}
            assert len(history) == len(curves[name]), "a point is there twice"
        yield {
            "id": run.info.run_id, "name": run.info.run_name, "state": run.info.status,
            "settings": {**run.data.params, **run.data.tags}, "curves": curves,
            "scores": run.data.metrics,
        }  # fmt: skip


def _wandb_records(path):
    """Yields the records of a file in the form of LevelDB's logs."""
    from wandb.proto import wandb_internal_pb2

    with open(path, "rb") as file:
        data = file.read()
    at, content = 7, b""  # behind the header of the file
    while at + 7 <= len(data):
        left = 32768 - at % 32768
        if left < 7:
            at += left
            continue
        _, length, kind = struct.unpack_from("<IHB", data, at)
        content += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # whole, or the last part
            record = wandb_internal_pb2.Record()
            record.ParseFromString(content)
            yield record
            content = b""


def read_wandb(output):
    for path in glob.glob(f"{output}/wandb/offline-run-*/run-*.wandb"):
        found = {"settings": {}, "curves": {}, "scores": {}}
        for record in _wandb_records(path):
            kind = record.WhichOneof("record_type")
            if kind == "run":
                found |= {"id": record.run.run_id, "name": record.run.display_name}
                for item in record.run.config.update:
                    found["settings"][item.key] = json.loads(item.value_json)
            elif kind == "history":
                for item in record.history.item:
                    curve = found["curves"].setdefault("/".join(item.nested_key), {})
                    curve[record.history.step.num] = json.loads(item.value_json)
            elif kind == "summary":
                for item in record.summary.update:
                    found["scores"][item.key] = json.loads(item.value_json)
            elif kind == "exit":
                found["state"] = record.exit.exit_code
        found["settings"] |= found["settings"].pop("albert")
        yield found


def read_trackio(output):
    os.environ.update(TRACKIO_DIR=output, HF_HUB_OFFLINE="1")
    import trackio
    from trackio.sqlite_storage import SQLiteStorage

    for run in trackio.Api().runs("albert"):
        curves = {}
        for row in SQLiteStorage.get_logs("albert", run.name, run_id=run.id):
            for name, value in row.items():
                curves.setdefault(name, {})[row["step"]] = value
        scores = {name: [*curve.values()][-1] for name, curve in curves.items()}
        yield {
            "id": run.id, "name": run.name, "state": run.config["status"], "settings": run.config,
            "curves": curves, "scores": scores,
        }  # fmt: skip


if __name__ == "__main__":
    READERS = {"mlflow": read_mlflow, "wandb": read_wandb, "trackio": read_trackio}
    print(json.dumps(list(READERS[sys.argv[1]](sys.argv[2]))))

"""Serves the folder of a fine-tuned model over HTTP: labels, choices, or answers to questions."""

import os
import re

from absl import flags, logging

from albert.cli import app, common_flags
from albert.io import file_io
from albert.serving import requests


def define_flags(flag_values):
    text, *_ = common_flags.definers(flag_values)

    def whole(*arguments):
        return flags.DEFINE_integer(*arguments, lower_bound=1, flag_values=flag_values)

    def seconds(*arguments):
        return flags.DEFINE_float(*arguments, lower_bound=0.1, flag_values=flag_values)

    text(
        "model_dir",
        None,
        "Folder of a fine-tuning run, whose best checkpoint is served, or of export_serving.",
    )
    text(
        "host",
        "127.0.0.1",
        "Address to listen at; the default is reached from this machine only. There is no "
        "authentication.",
    )
    flags.DEFINE_integer(
        "port",
        8501,
        "Port to listen at; 0: one that is free, see the log.",
        lower_bound=0,
        upper_bound=65535,
        flag_values=flag_values,
    )
    text("model_name", None, "Name in paths of TensorFlow Serving's form; by default the folder's.")
    whole("max_batch_size", 16, "Most sequences that are computed together.")
    flags.DEFINE_float(
        "batch_deadline_ms",
        2.0,
        "Milliseconds that a text waits for others to be computed together with.",
        lower_bound=0.0,
        flag_values=flag_values,
    )
    whole("max_waiting", 256, "Most texts that wait; further requests are answered with 503.")
    whole("max_request_bytes", 1 << 20, "Most bytes of a request.")
    whole("max_texts", 64, "Most examples in a request.")
    whole("max_text_chars", 20_000, "Most characters of the texts of an example.")
    seconds("request_timeout_secs", 30.0, "Seconds until a request is given up.")
    seconds(
        "read_timeout_secs", 10.0, "Seconds that a client may take to send, or to take a reply."
    )
    flags.DEFINE_integer(
        "threads",
        None,
        "Threads that compute; by default one for each core.",
        lower_bound=1,
        flag_values=flag_values,
    )
    text(
        "runtime",
        "auto",
        "What runs a folder of export_serving: onnxruntime, openvino and the like; by default the "
        "one of its format.",
    )
    flags.mark_flag_as_required("model_dir", flag_values=flag_values)


def name_of(values):
    """Name of the model in paths."""
    name = values.model_name
    if name is None:
        name = os.path.basename(os.path.abspath(values.model_dir))
    if not re.fullmatch(r"[\w.-]+", name):
        raise file_io.InputError(
            f"--model_name: expected letters, digits, dots and dashes, found {name!r}"
        )
    return name


def _http_server():
    try:
        from albert.serving import server
    except ModuleNotFoundError as error:
        packages = {"aiohttp": "aiohttp", "prometheus_client": "prometheus-client"}
        if error.name not in packages:
            raise
        package = packages[error.name]
        raise file_io.InputError(f"the server needs {package}: pip install {package}") from error
    return server


def main(values):
    if values.max_texts > values.max_waiting:
        raise file_io.InputError(
            f"--max_texts={values.max_texts} must not be more than --max_waiting="
            f"{values.max_waiting}, or such a request could never be taken"
        )
    if not file_io.is_dir(values.model_dir):
        raise file_io.InputError(f"--model_dir: there is no folder {values.model_dir}")
    http_server = _http_server()
    if not http_server.is_loopback(values.host):
        logging.warning(
            "--host=%s: whoever reaches this address may ask the model and read the metrics; there "
            "is no authentication and no encryption, so put a proxy that has both before it",
            values.host,
        )
    settings = http_server.Settings(
        values.host,
        values.port,
        name_of(values),
        values.max_batch_size,
        values.batch_deadline_ms / 1000,
        values.max_waiting,
        values.max_request_bytes,
        requests.Limits(values.max_texts, values.max_text_chars),
        values.request_timeout_secs,
        values.read_timeout_secs,
    )

    def load(go_on):
        from albert.serving import (
            served_model,  # brings TensorFlow; the port answers before that is there
        )

        model = served_model.load(values.model_dir, values.runtime, values.threads)
        served_model.warm(model, values.max_batch_size, go_on)
        return model

    http_server.run(settings, load)


if __name__ == "__main__":
    app.run(main, define_flags)

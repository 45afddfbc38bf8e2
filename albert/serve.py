"""Serves the folder of a fine-tuned model over HTTP: labels, choices, or answers to questions."""

import dataclasses
import os
import re
from typing import Any

from absl import flags, logging

from albert.cli import app, options
from albert.io import file_io
from albert.serving import requests


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(options.Group):
    """The model to serve, the address, and the limits."""

    model_dir: str = options.flag(
        None,
        "Folder of a fine-tuning run, whose best checkpoint is served, or of export_serving.",
        required=True,
    )
    host: str = options.flag(
        "127.0.0.1",
        "Address to listen at; the default is reached from this machine only. There is no "
        "authentication.",
    )
    port: int = options.flag(
        8501, "Port to listen at; 0: any free port, see the log.", minimum=0, maximum=65535
    )
    model_name: str | None = options.flag(
        None, "Name in paths of TensorFlow Serving's form; by default the folder's."
    )
    max_batch_size: int = options.flag(
        16, "Maximum number of sequences that are computed together.", minimum=1
    )
    batch_deadline_ms: float = options.flag(
        2.0, "Milliseconds that a text waits for others to be computed together with.", minimum=0.0
    )
    max_connections: int = options.flag(
        512,
        "Maximum number of connections; beyond it the one that has been open longest without a "
        "whole request is closed. Fewer where the system allows fewer open files.",
        minimum=1,
    )
    allowed_hosts: str = options.flag(
        "",
        "Names, separated by commas, that requests may give as the host in addition to addresses, "
        "localhost, --host and the machine's name; * for any.",
    )
    max_waiting: int = options.flag(
        256,
        "Maximum number of waiting texts; further requests are answered with 503.",
        minimum=1,
    )
    max_request_bytes: int = options.flag(1 << 20, "Maximum bytes of a request.", minimum=1)
    max_texts: int = options.flag(64, "Maximum number of examples in a request.", minimum=1)
    max_text_chars: int = options.flag(
        20_000, "Maximum characters of the texts of an example.", minimum=1
    )
    request_timeout_secs: float = options.flag(
        30.0, "Seconds until a request is given up.", minimum=0.1
    )
    read_timeout_secs: float = options.flag(
        10.0, "Seconds that a client may take to send, or to take a reply.", minimum=0.1
    )
    threads: int | None = options.flag(
        None, "Threads that compute; by default one for each core.", minimum=1
    )
    runtime: str = options.flag(
        "auto",
        "What runs a folder of export_serving: onnxruntime, openvino and the like; by default the "
        "one of its format.",
    )
    page: bool = options.flag(True, "Show a page at / on which the model is tried in a browser.")


def define_flags(flag_values: flags.FlagValues) -> None:
    options.define(Settings, flag_values)


def name_of(settings: Settings) -> str:
    """Returns the name of the model in paths."""
    name = settings.model_name
    if name is None:
        name = os.path.basename(os.path.abspath(settings.model_dir))
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


def server_settings(settings: Settings) -> Any:
    """Returns the `server.Settings` of the flags."""
    allowed_hosts = (name.strip() for name in settings.allowed_hosts.split(","))
    return _http_server().Settings(
        settings.host,
        settings.port,
        name_of(settings),
        settings.max_batch_size,
        settings.batch_deadline_ms / 1000,
        settings.max_waiting,
        settings.max_request_bytes,
        requests.Limits(settings.max_texts, settings.max_text_chars),
        settings.request_timeout_secs,
        settings.read_timeout_secs,
        settings.max_connections,
        tuple(filter(None, allowed_hosts)),
        settings.page,
    )


def main(values: flags.FlagValues) -> None:
    settings = options.read(Settings, values)
    if settings.max_texts > settings.max_waiting:
        raise file_io.InputError(
            f"--max_texts={settings.max_texts} must not be more than --max_waiting="
            f"{settings.max_waiting}, or such a request could never be taken"
        )
    if not file_io.is_dir(settings.model_dir):
        raise file_io.InputError(f"--model_dir: there is no folder {settings.model_dir}")
    http_server = _http_server()
    if not http_server.is_loopback(settings.host):
        logging.warning(
            "--host=%s: anyone who reaches this address may ask the model and read the metrics; "
            "there is no authentication and no encryption, so put a proxy that has both before it",
            settings.host,
        )

    def load(go_on):
        # Imports TensorFlow; the port already answers while that happens.
        from albert.serving import served_model

        model = served_model.load(settings.model_dir, settings.runtime, settings.threads)
        served_model.warm(model, settings.max_batch_size, go_on)
        return model

    http_server.run(server_settings(settings), load)


if __name__ == "__main__":
    app.run(main, define_flags)

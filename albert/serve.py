"""Serves models over HTTP: labels, choices, answers to questions, or masked words.

Example:

    albert serve --model_dir=out/sst2 --port=8501
"""

import dataclasses
import errno
import os
import re
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import TYPE_CHECKING

from absl import flags, logging

from albert.cli import app, environment, options, path_flags
from albert.io import file_io
from albert.model import published
from albert.serving import requests

if TYPE_CHECKING:
    from albert.serving import server
    from albert.serving.served_model import ServedModel

_NAME = re.compile(r"[\w.-]+")  # of a model in paths


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(options.Group):
    """The models to serve, the address, and the limits."""

    section = "Limits"
    sections = {
        options.MODEL: "model_dir model model_name runtime",
        options.DEVICES: "threads",
        "Address": "host port allowed_hosts page log_format",
    }

    model_dir: str | None = options.flag(
        None,
        "Folder of a fine-tuning run, whose best checkpoint is served, or of export_serving; or a "
        "pre-trained model, which fills masked words: a folder, or a name such as albert_mini.",
        path=path_flags.FOLDER,
    )
    model: tuple[str, ...] = options.flag(
        (),
        "One of several models as name:folder, instead of --model_dir; may be given several times.",
        repeated=True,
        path=path_flags.Path(files=(), has_name=True),
    )
    host: str = options.flag(
        "127.0.0.1",
        "Address to listen at; 127.0.0.1 is reached from this machine only. There is no "
        "authentication.",
    )
    port: int = options.flag(
        8501, "Port to listen at; 0: any free port, see the log.", minimum=0, maximum=65535
    )
    model_name: str | None = options.flag(
        None, "Name of the model of --model_dir in paths; by default the folder's."
    )
    max_batch_size: int = options.flag(
        16, "Maximum number of sequences that are computed together.", minimum=1
    )
    max_batch_tokens: int | None = options.flag(
        None,
        "Maximum number of tokens, with padding, that are computed together; a longer text is "
        "computed alone. By default only --max_batch_size limits a batch.",
        minimum=1,
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
        "Maximum number of waiting texts of each model; further requests are answered with 503.",
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
        None,
        "Threads that compute, shared equally by the models; by default one for each core.",
        minimum=1,
    )
    runtime: str = options.flag(
        "auto",
        "What runs a folder of export_serving: onnxruntime, openvino and the like; auto: the one "
        "of its format.",
    )
    log_format: str = options.flag(
        "text",
        "Form of the log: text, or json with an object in each line and a line for each request.",
        choices=("text", "json"),
    )
    page: bool = options.flag(True, "Show a page at / on which the model is tried in a browser.")


def define_flags(flag_values: flags.FlagValues) -> None:
    options.define(Settings, flag_values)
    environment.set_defaults(flag_values, options.names(Settings), os.environ)


def models_of(settings: Settings) -> dict[str, str]:
    """Returns the folders of the models by name."""
    if bool(settings.model) == bool(settings.model_dir):
        raise file_io.InputError(
            "expected either --model_dir=folder, or --model=name:folder for each of several models"
        )
    if settings.model_dir:
        name = settings.model_name
        if name is None:
            name = os.path.basename(os.path.abspath(settings.model_dir))
            if not _NAME.fullmatch(name):
                raise file_io.InputError(
                    f"--model_dir={settings.model_dir}: the folder's name {name!r} cannot be in "
                    "paths of requests; give --model_name of letters, digits, dots and dashes"
                )
        return dict([_model("--model_name", name, "--model_dir", settings.model_dir)])
    if settings.model_name:
        raise file_io.InputError("--model_name: only for --model_dir; --model holds the name")
    folders: dict[str, str] = {}
    for value in settings.model:
        name, _, folder = value.partition(":")
        flag = f"--model={value}"
        if not folder:
            raise file_io.InputError(f"{flag}: expected name:folder")
        if name in folders:
            raise file_io.InputError(f"{flag}: expected each name once, found {name!r} again")
        folders |= [_model(flag, name, flag, folder)]
    return folders


def _model(name_flag: str, name: str, folder_flag: str, folder: str) -> tuple[str, str]:
    """Returns a name and the local path of a folder; messages name the flags, with dashes."""
    if not _NAME.fullmatch(name):
        raise file_io.InputError(
            f"{name_flag}: expected letters, digits, dots and dashes, found {name!r}"
        )
    path = published.local_path(folder)
    if not file_io.is_dir(path):
        raise file_io.InputError(f"{folder_flag}: the folder {path} does not exist")
    return name, path


def share_of(threads: int | None, models: int) -> int | None:
    """Returns the number of threads of each model, given that of all; None: one for each core."""
    return threads if models == 1 else max(1, (threads or os.cpu_count() or 1) // models)


def threads_of(threads: int | None, folders: Sequence[str]) -> list[int | None]:
    """Returns the number of threads for the model of each folder, given that of all.

    None: one for each core. TensorFlow has one pool for all of its models: each of them has the sum
    of their parts.
    """
    from albert.serving import runtimes  # imports NumPy, which --help does not need

    each, shared = share_of(threads, len(folders)), [*map(runtimes.is_of_tensorflow, folders)]
    return [each and each * sum(shared) if is_shared else each for is_shared in shared]


def _http_server() -> ModuleType:
    try:
        from albert.serving import server
    except ModuleNotFoundError as error:
        packages = {"aiohttp": "aiohttp", "prometheus_client": "prometheus-client"}
        if error.name not in packages:
            raise
        raise file_io.InputError(
            f"the server needs {packages[error.name]}: pip install "
            f"{' '.join(packages.values())}, which are the extra serve"
        ) from error
    return server


def server_settings(settings: Settings) -> "server.Settings":
    allowed_hosts = (name.strip() for name in settings.allowed_hosts.split(","))
    names = tuple(models_of(settings))
    return _http_server().Settings(
        host=settings.host,
        port=settings.port,
        model_name=names[0],
        model_names=names if settings.model else (),
        max_batch_size=settings.max_batch_size,
        max_batch_tokens=settings.max_batch_tokens,
        batch_deadline=settings.batch_deadline_ms / 1000,
        max_waiting=settings.max_waiting,
        max_request_bytes=settings.max_request_bytes,
        limits=requests.Limits(settings.max_texts, settings.max_text_chars),
        request_timeout=settings.request_timeout_secs,
        read_timeout=settings.read_timeout_secs,
        max_connections=settings.max_connections,
        allowed_hosts=tuple(filter(None, allowed_hosts)),
        log_requests=settings.log_format == "json",
        page=settings.page,
    )


def _loader(settings: Settings, folder: str, threads: int | None) -> Callable:
    def load(should_continue: Callable[[], bool]) -> "ServedModel":
        # Imports TensorFlow; the port already answers while that happens.
        from albert.serving import served_model

        size, tokens = settings.max_batch_size, settings.max_batch_tokens
        model = served_model.load(folder, settings.runtime, threads, tokens, size)
        served_model.warm(model, min(size, settings.max_waiting), should_continue, tokens)
        return model

    return load


def main(values: flags.FlagValues) -> None:
    settings = options.read(Settings, values)
    if settings.max_texts > settings.max_waiting:
        raise file_io.InputError(
            f"--max_texts={settings.max_texts} must not be more than --max_waiting="
            f"{settings.max_waiting}, or such a request could never be taken"
        )
    folders = models_of(settings)
    http_server = _http_server()
    if settings.log_format == "json":
        http_server.server_log.use_json()
    for variable, meant in environment.misspelled(options.names(Settings), os.environ):
        logging.warning("%s in the environment is ignored; did you mean %s?", variable, meant)
    if not http_server.is_loopback(settings.host):
        logging.warning(
            "--host=%s: anyone who reaches this address may ask the model and read the metrics; "
            "there is no authentication and no encryption, so put a proxy that has both before it",
            settings.host,
        )

    paths = [*folders.values()]
    parts = zip(paths, threads_of(settings.threads, paths), strict=True)
    loads = [_loader(settings, path, threads) for path, threads in parts]
    try:
        http_server.run(server_settings(settings), *loads)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        raise file_io.InputError(
            f"--port={settings.port} of {settings.host} is in use by another program"
        ) from error


if __name__ == "__main__":
    app.run(main, define_flags)

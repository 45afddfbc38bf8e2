"""Finds models by name, published or shipped, and models in archives, local or on a web server.

The published names and addresses are those of the README of google-research/albert.
"""

import difflib
import fnmatch
import hashlib
import os
import re

from albert.io import archives, file_io

ADDRESS = "https://storage.googleapis.com/albert_models/{}.tar.gz"
NAMES = tuple(
    f"albert_{size}_{version}"
    for version in ("v2", "v1", "zh")
    for size in ("base", "large", "xlarge", "xxlarge")
)
# Models that come with the package, in folders of these names.
SHIPPED = ("albert_mini",)
_SHIPPED_FOLDER = os.path.join(os.path.dirname(os.path.dirname(__file__)), "pretrained")
_LIKENESS = 0.85  # minimum, from 0 to 1, of a name and a published one that was probably meant
# With an owner, or one of the oldest models, whose names have hyphens: "bert-base-uncased".
_HUB_NAME = re.compile(r"(?!.*ckpt)([\w-][\w.-]*/[\w-][\w.-]*|[\w.]+-[\w.-]+)")
_GZIP = b"\x1f\x8b"  # with which archives begin
# Names of vocabularies in the folders of models. Archives made on macOS have files with "._" first.
SPM_PATTERN, VOCAB_PATTERN = "[!.]*.model", "vocab*.txt"
# The environment variable that names tensorflow-hub's download folder.
_CACHE_VARIABLE = "TFHUB_CACHE_DIR"


def cache_dir() -> str:
    """Returns the folder for archives and their content: tensorflow-hub's if set, else our own."""
    return os.environ.get(_CACHE_VARIABLE) or os.path.expanduser("~/.cache/albert")


def set_cache_dir(path: str) -> None:
    """Sets `cache_dir`, also tensorflow-hub's, for this process and the processes it starts."""
    os.environ[_CACHE_VARIABLE] = path


def local_path(path: str) -> str:
    """Returns the local path of a model; fetches and unpacks it, once, where that is needed.

    Args:
      path: a name in `NAMES` or `SHIPPED` (a file or folder with the same name takes precedence);
        the URL of a ``.tar.gz`` file; a local ``.tar.gz`` file; or any other path, which is
        returned as it is.
    """
    if path in (*NAMES, *SHIPPED):
        if file_io.exists(path) or file_io.exists(f"{path}.index"):
            return path
        if path in SHIPPED:
            return os.path.join(_SHIPPED_FOLDER, path)
        return _fetched(ADDRESS.format(path), f"{path}.tar.gz")
    if path.startswith(("http://", "https://")):
        address = re.split(r"[?#]", path)[0]
        if not archives.is_archive(address):
            raise file_io.InputError(f"{path} is not the URL of a .tar.gz file")
        # Files of one name on several servers are different files.
        key = hashlib.sha256(path.encode()).hexdigest()[:16]
        return _fetched(path, f"{key}-{os.path.basename(address)}")
    if archives.is_archive(path) and file_io.exists(path):
        return archives.unpack_archive(path, cache_dir())
    return path


def vocabularies(
    spm_model_file: str | None, vocab_file: str | None
) -> tuple[str | None, str | None]:
    """Returns the files of two flags, of which the first takes precedence; see `vocabulary`."""
    if spm_model_file:
        spm_model_file = vocabulary(spm_model_file, SPM_PATTERN)
    elif vocab_file:
        vocab_file = vocabulary(vocab_file, VOCAB_PATTERN)
    return spm_model_file, vocab_file


def vocabulary(path: str, pattern: str) -> str:
    """Returns the vocabulary in a model's folder, also of a model that `local_path` fetches.

    Args:
      path: see `local_path`; a path of anything but a folder is returned as it is.
      pattern: glob of the names of vocabularies of the wanted kind.
    """
    folder = local_path(path)
    if folder == path and not file_io.is_dir(path):
        return path
    files = file_io.listdir(folder)
    names = fnmatch.filter(files, pattern)
    if len(names) != 1:
        kinds = {SPM_PATTERN: "spm_model_file", VOCAB_PATTERN: "vocab_file"}
        others = [name for other, name in kinds.items() if fnmatch.filter(files, other)]
        remedy = f"; it has a vocabulary for {others[0]}" if others and not names else ""
        raise file_io.InputError(
            f"{kinds[pattern]}: expected one vocabulary {pattern} in {path}, found "
            f"{', '.join(names) or 'none'}{remedy}"
        )
    return os.path.join(folder, names[0])


def _fetched(url: str, name: str) -> str:
    """Returns the folder of an archive, which is fetched unless the cache has it."""
    from albert.io import downloads  # brings urllib and ssl, which other models do not need

    path = os.path.join(cache_dir(), name)
    file_io.make_dirs(cache_dir())
    try:
        downloads.fetch(url, path, _GZIP)
    except file_io.NoRoomError:
        raise
    except file_io.InputError as error:
        raise file_io.InputError(
            f"{error}; without a network, fetch {url} elsewhere and put it at {path}, or name your "
            "copy of the .tar.gz file in place of the model"
        ) from error
    try:
        return archives.unpack_archive(path, cache_dir())
    except file_io.NoRoomError:
        raise
    except file_io.InputError as error:
        raise file_io.InputError(f"{error}: delete {path} and run the command again") from error


def suggestion(path: str) -> str:
    """Returns advice for the path of a missing model; "" if it resembles no name of a model.

    These are the published names, which those of the same models on the Hugging Face Hub, such as
    "albert/albert-base-v2", resemble, and other names on the Hub.
    """
    name = path.lower().replace("-", "_").removeprefix("albert/")
    known = (*NAMES, *SHIPPED)
    close = [] if os.sep in name else difflib.get_close_matches(name, known, 1, _LIKENESS)
    if close:
        return (
            f"did you mean {close[0]}? Published models are {', '.join(NAMES)}; "
            f"{' and '.join(SHIPPED)} comes with the package"
        )
    if not _HUB_NAME.fullmatch(path) or file_io.is_dir(path.split("/")[0]):
        return ""
    folder = os.path.basename(path)
    return (
        "models of the Hugging Face Hub are not fetched by name; if this is one, give the folder "
        f'{folder} after: python -c "from huggingface_hub import snapshot_download; '
        f"snapshot_download('{path}', local_dir='{folder}')\" (pip install huggingface_hub)"
    )

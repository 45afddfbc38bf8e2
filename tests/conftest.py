"""Fixtures shared by all tests."""

import collections
import contextlib
import gc
import importlib.util
import json
import os
import pathlib
import signal
import subprocess
import sys

import pytest

from albert.io import tensorflow_start
from albert.text import tokenization
from tests.support.processes import killed_at_the_end
from tests.support.sources import ROOT

# Tiny models have no work for several threads. These would slow down the other test process, by a
# tenth to a fifth of the whole time.
for _kind in ("INTRAOP", "INTEROP"):
    os.environ.setdefault(f"TF_NUM_{_kind}_THREADS", "1")
# The C library gives each thread its own heap, which keeps freed memory. Every training starts
# threads, so a test process would grow to gigabytes. Processes started from here inherit this.
os.environ.setdefault("MALLOC_ARENA_MAX", "1")
os.environ.setdefault("PLAIN_GRAPHS", "1")  # see tests/support/graphs.py

tensorflow_start.install()

# A shell starts background jobs with Ctrl-C ignored, and nohup ignores SIGHUP. The programs under
# test would inherit that.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

gc.disable()  # while everything is imported


def pytest_collection_finish():
    """Excludes imported objects, which all stay, from garbage collection.

    Building a graph makes many objects, which the collector would otherwise scan again and
    again: a fifth of the time of many tests.
    """
    if "tensorflow" in sys.modules:
        from tests.support import graphs  # imports TensorFlow, which not every test needs

        graphs.leave_out_tracebacks()
        graphs.leave_unoptimized()
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 10, 10)
    gc.enable()


def pytest_collection_modifyitems(items):
    """Puts the files with most slow tests first, so that no process runs long alone."""
    slow: collections.Counter[pathlib.Path] = collections.Counter()
    for item in items:
        if marker := item.get_closest_marker("slow"):
            slow[item.path] += marker.args[0] if marker.args else 1
    items.sort(key=lambda item: -slow[item.path])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport():
    """Escapes lone surrogates in captured logs: pytest-xdist cannot send them and would end."""
    report = yield
    report.sections = [
        (name, text.encode("utf-8", "backslashreplace").decode()) for name, text in report.sections
    ]
    return report


@pytest.fixture(scope="module", autouse=True)
def _collect_garbage():
    """Frees graphs after each test file; they refer to each other and would pile up.

    Objects that TensorFlow keeps anyway are not scanned again.
    """
    yield
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def _leave_disks_alone():
    """Makes `os.fsync` do nothing: written data survive the end of a process without it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda file: None)
        yield


@pytest.fixture(scope="session")
def testdata():
    """Folder of tiny vocabularies and the recordings made with them."""
    return ROOT / "tests" / "testdata"


@pytest.fixture(scope="session")
def golden(testdata):
    """Recorded outputs of the reference that hold no third-party text."""
    return testdata / "golden"


@pytest.fixture(scope="session")
def shared():
    """Research data sets and recordings made from them; not part of this repository."""
    path = pathlib.Path(os.environ.get("ALBERT_SHARED", ROOT.parent / "shared"))
    if not (path / "data").is_dir():
        pytest.skip(f"needs the research data in {path} (set ALBERT_SHARED)")
    return path


@pytest.fixture(scope="session")
def tokenizer(testdata):
    """A tokenizer with a SentencePiece model of 400 pieces."""
    return tokenization.FullTokenizer(spm_model_file=str(testdata / "tiny.model"))


@pytest.fixture(scope="session")
def wordpiece(testdata):
    """A tokenizer with a WordPiece vocabulary."""
    return tokenization.FullTokenizer(vocab_file=str(testdata / "tiny_vocab.txt"))


@pytest.fixture(scope="session")
def english(shared):
    """The tokenizer of the published English models."""
    path = str(shared / "data" / "spm" / "30k-clean.model")
    return tokenization.FullTokenizer(spm_model_file=path)


@pytest.fixture(scope="session")
def run_script():
    """``run_script(module, name=value, …)``: runs a script's main in this process."""
    from tests.support import builders  # imports TensorFlow, which not every test needs

    return builders.run


@pytest.fixture(scope="module")
def peer(tmp_path_factory, testdata):
    """``peer(requests) -> answers`` of `testdata/huggingface_peer.py`; see there."""
    python = os.environ.get("ALBERT_TRANSFORMERS_PYTHON")
    if not python:
        if not (importlib.util.find_spec("transformers") and importlib.util.find_spec("torch")):
            pytest.skip("needs transformers and torch (ALBERT_TRANSFORMERS_PYTHON names a Python)")
        python = sys.executable
    log = tmp_path_factory.mktemp("peer") / "log"
    with open(log, "w") as file:
        process = subprocess.Popen(
            [python, str(testdata / "huggingface_peer.py")], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=file, text=True,
            # Its threads wait for each other in loops, which takes minutes if cores are in use.
            env={**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"},
        )  # fmt: skip

    def ask(requests):
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(json.dumps(requests) + "\n")
            process.stdin.flush()
        answers = process.stdout.readline()
        assert answers, log.read_text()
        return json.loads(answers)

    with killed_at_the_end([process]):
        yield ask

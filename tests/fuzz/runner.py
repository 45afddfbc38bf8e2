"""Runs cases in a process of its own, which may crash, hang or take too much memory."""

import contextlib
import dataclasses
import multiprocessing
import os
import random
import resource
import shutil
import time
import traceback

from tests.fuzz import mutations

CORPUS = os.path.join(os.path.dirname(__file__), "corpus")
SECONDS = 10  # of a processor that a case may take
WAIT = 120  # seconds that a case may wait while it computes nothing
IDLE = 0.1  # seconds of a processor in that time: less is nothing
_MEMORY = 400 << 20  # bytes beyond what the largest file explains
_MEMORY_PER_BYTE = 200
_FRAME = "tests/fuzz"


@dataclasses.dataclass(frozen=True)
class Case:
    """Input of a reader.

    Attributes:
      content: of its file.
      siblings: {name: content} of other files in the folder.
      change: what happens to the file while it is read: at the opening of this number, from 1, it
        becomes this content, or is removed (None). () if nothing happens.
    """

    content: bytes
    siblings: dict
    change: tuple = ()


def write_case(folder, reader, content, siblings=None):
    """Writes a case and the files next to it; returns its path."""
    for name in os.listdir(folder):
        path = os.path.join(folder, name)
        shutil.rmtree(path) if os.path.isdir(path) else os.remove(path)
    path = os.path.join(folder, reader.name)
    siblings = reader.siblings if siblings is None else siblings
    for name, other in {**siblings, reader.name: content}.items():
        target = os.path.join(folder, name)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(target, "wb") as file:
            file.write(other)
    return path


@contextlib.contextmanager
def _changing(path, change):
    """A block in which a file changes once it has been opened a number of times."""
    from albert.io import file_io

    real, opened = file_io.open_file, 0

    def open_file(name, mode="r"):
        nonlocal opened
        file = real(name, mode)
        opened += name == path
        if change and name == path and opened == change[0]:
            with contextlib.suppress(FileNotFoundError):
                os.remove(path)
            if change[1] is not None:
                with open(path, "wb") as other:
                    other.write(change[1])
        return file

    file_io.open_file = open_file
    try:
        yield
    finally:
        file_io.open_file = real


def run_case(folder, reader, case):
    """Returns the fault of a reader with a `Case`; None if there is none.

    Right is a result, or an `InputError` that names the file or its folder.
    """
    from albert.io import file_io

    path = write_case(folder, reader, case.content, case.siblings)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    # On a busy machine a case waits for a processor; several threads use more than one.
    started, used = time.monotonic(), time.process_time()
    finding = None
    try:
        with _changing(path, case.change):
            reader.read(path)
    except file_io.InputError as error:
        if folder not in str(error):
            finding = f"the message names no file: {error}"
    except Exception:
        finding = traceback.format_exc()
    taken = min(time.monotonic() - started, time.process_time() - used)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10) - before
    if finding is None and taken > SECONDS:
        finding = f"took {taken:.1f} s of a processor"
    if finding is None and grown > _MEMORY + _MEMORY_PER_BYTE * len(case.content):
        finding = f"took {grown >> 20} MiB of memory for {len(case.content)} bytes"
    return finding


def place_of(finding):
    """Returns the common part of findings with one cause: our last line of code, or the text."""
    frames = [line for line in finding.splitlines() if "/albert/" in line and _FRAME not in line]
    last = finding.strip().splitlines()[-1].split(":")[0]
    return f"{frames[-1].strip()} {last}" if frames else finding.strip()[:60]


def _work(connection, names, seed, root):
    """Draws and runs cases; sends (reader, number, finding) and keeps the running one in a file."""
    from tests.fuzz import readers

    work, folder = os.path.join(root, "work"), os.path.join(root, "case")
    for path in (work, folder):
        shutil.rmtree(path, ignore_errors=True)  # files of a worker that was killed
        os.makedirs(path)
    os.fsync = lambda file: None  # what is written is read at once, and is then of no use
    all_readers = readers.all_readers(work)
    with open(os.devnull, "w") as null, contextlib.redirect_stderr(null):
        for name, number in iter(connection.recv, None):
            reader = all_readers[name]
            case = make_case(reader, seed, number, all_readers)
            connection.send(run_case(folder, reader, case))


def make_case(reader, seed, number, all_readers):
    """A `Case`; a function of reader, seed and number, and of the samples of all readers."""
    rng = random.Random(f"{reader.name}/{seed}/{number}")
    siblings, change = dict(reader.siblings), ()
    if reader.forge and rng.random() < 0.5:
        content = reader.forge(rng, rng.choice(reader.samples))
        if rng.random() < 0.1:
            content = mutations.mutate(rng, [content])
    else:
        content = mutations.mutate(rng, reader.samples)
    if rng.random() < 0.05:  # a file of another kind, or other files next to it
        samples = [sample for other in all_readers.values() for sample in other.samples]
        name = rng.choice([None, *siblings])
        if name is None:
            content = rng.choice(samples)
        elif rng.random() < 0.5:
            siblings[name] = rng.choice([*samples, *siblings.values()])
        else:
            del siblings[name]
    if rng.random() < 0.05:  # a file that changes while it is read
        content = rng.choice([content, *reader.samples])
        other = rng.choice([None, b"", content[: len(content) // 2], *reader.samples])
        change = (rng.choice([1, 1, 2, 3]), other)
    return Case(content, siblings, change)


def hangs(connection, pid):
    """Returns whether a process waits or computes too long; returns once there is an answer.

    Processor time counts: on a busy machine any case takes long. It includes the imports, which the
    first answer comes after.
    """
    first = last = _processor_seconds(pid)
    while not connection.poll(WAIT):
        now = _processor_seconds(pid)
        if now - last < IDLE or now - first > SECONDS + WAIT:
            return True
        last = now
    return False


def _processor_seconds(pid):
    with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Worker:
    """A process that runs cases; a new one takes the place of one that died or hangs.

    Args:
      seed: of all cases.
      root: folder for its files.
    """

    def __init__(self, seed, root):
        self._seed, self._root = seed, root
        self._process = None

    def run(self, name, number):
        """Returns the fault of a case; None if there is none."""
        if self._process is None:
            context = multiprocessing.get_context("spawn")
            self._pipe, theirs = context.Pipe()
            arguments = (theirs, [name], self._seed, self._root)
            self._process = context.Process(target=_work, args=arguments, daemon=True)
            self._process.start()
            theirs.close()
        try:
            self._pipe.send((name, number))
            if hangs(self._pipe, self._process.pid):
                return self._end("hangs")
            return self._pipe.recv()
        except (EOFError, OSError):
            return self._end("the process died")

    def _end(self, finding):
        self._process.kill()
        self._process.join()
        status, self._process = self._process.exitcode, None
        return f"{finding} (exit status {status})"

    def close(self):
        """Ends the process."""
        if self._process is not None:
            self._end("")


def save(reader, content):
    """Keeps a content that once failed; returns its path."""
    import hashlib

    folder = os.path.join(CORPUS, reader.name.replace("/", "__"))
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, hashlib.sha256(content).hexdigest()[:16])
    with open(path, "wb") as file:
        file.write(content)
    return path


def kept(reader):
    """Paths of the contents that once failed."""
    folder = os.path.join(CORPUS, reader.name.replace("/", "__"))
    names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    return [os.path.join(folder, name) for name in names]

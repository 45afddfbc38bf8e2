"""Processes that begin with TensorFlow imported, for the tests that start many.

Python, TensorFlow and this package take about five seconds of a core to start. Here one process,
the template, imports them and then only waits to be forked, before TensorFlow has started any
thread. A fork has its own environment, folder, files and signals, and ends like any process.

`Process` is a fork of which a test gets the process id. `python` names a program to be called like
an interpreter, for scripts that start processes themselves; signals do not reach those. Where the
environment has `CHILDREN_TOO`, that program is `sys.executable` of the forks, too.
"""

import atexit
import faulthandler
import functools
import gc
import importlib
import json
import os
import pathlib
import runpy
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import types

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
CHILDREN_TOO = "FORKED_CHILDREN"
# Most forks need the modules of these.
COMMANDS = ("albert.run_pretraining", "albert.run_classifier", "albert.run_squad_v1")


# --- the template -------------------------------------------------------------------------------


def serve(path):
    """Forks for each request that comes to a socket, until its standard input is closed."""
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # else NumPy starts threads, which forks do not have
    from albert.io import tensorflow_start

    tensorflow_start.install()
    from tests.support import graphs

    graphs.leave_out_tracebacks()
    for name in COMMANDS:
        importlib.import_module(name)
        del sys.modules[name]  # what they import is left; forks run the command as __main__
    _ = sys.modules["tensorflow"].summary.create_file_writer  # imports TensorBoard
    threads = len(os.listdir("/proc/self/task"))
    assert threads == 1, f"{threads} threads: a fork would lack all but one"
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 10, 10)  # as in conftest.py
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{path}.new")
        listener.listen(16)
        os.rename(f"{path}.new", path)
        while 0 not in select.select([listener, 0], [], [])[0]:
            connection, _ = listener.accept()
            if not os.fork():
                listener.close()
                attend(connection, _program(path))
                return
            connection.close()
            while _reap():
                pass
    shutil.rmtree(os.path.dirname(path))


def _reap():
    try:
        return os.waitpid(-1, os.WNOHANG)[0]
    except ChildProcessError:
        return 0


def attend(connection, program):
    """Starts what a request asks for, tells its process id and, at the end, its status.

    If the other side hangs up, the process is killed.

    Args:
      connection: a socket.
      program: path of the program that stands in for an interpreter.
    """
    (size, files, _, _) = socket.recv_fds(connection, 8, 3)
    with connection.makefile("rb") as stream:
        request = json.loads(stream.read(int.from_bytes(size, "big")))
    child = os.fork()
    if not child:
        connection.close()
        become(request, files, program)
        return
    for file in files:
        os.close(file)
    connection.sendall(b"%d\n" % child)
    end = os.pidfd_open(child)
    if end in select.select([end, connection], [], [])[0]:
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        connection.sendall(b"%d\n" % status)
    else:
        os.kill(child, signal.SIGKILL)
    os._exit(0)


def become(request, files, stand_in):
    """Runs a program in this process as ``python *arguments`` would."""
    for place, file in enumerate(files):
        os.dup2(file, place)
        os.close(file)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    faulthandler.enable()  # SIGABRT shows what each thread does
    if request["new_session"]:
        os.setsid()
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    if os.environ.get(CHILDREN_TOO):
        import multiprocessing.spawn  # noqa: F401 - it keeps the interpreter, for its own processes

        sys.executable = stand_in
    sys.modules["tests.support.graphs"].leave_unoptimized()
    try:
        _run(*request["arguments"])
    except SystemExit as end:
        if end.code is not None and not isinstance(end.code, int):
            raise
        _end(end.code or 0)
    _end(0)


def _run(kind, program, *arguments):
    if kind == "-m":
        sys.argv = [program, *arguments]
        runpy.run_module(program, run_name="__main__", alter_sys=True)
    else:
        assert kind == "-c", kind
        sys.argv = ["-c", *arguments]
        main = sys.modules["__main__"] = types.ModuleType("__main__")
        exec(compile(program, "<string>", "exec"), main.__dict__)


def _end(status):
    """Does what an interpreter does at its end, but does not free each object of TensorFlow."""
    threading._shutdown()  # waits for threads
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


# --- asking for processes -----------------------------------------------------------------------


def ask(path, arguments, files, folder=None, environment=None, new_session=False):
    """Asks the template for a process; a stream of two lines, its id and its status."""
    request = {
        "arguments": [str(word) for word in arguments],
        "folder": str(folder or os.getcwd()),
        "environment": dict(os.environ if environment is None else environment),
        "new_session": new_session,
    }
    content = json.dumps(request).encode()
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(path)
    socket.send_fds(connection, [len(content).to_bytes(8, "big")], files)
    connection.sendall(content)
    return connection


@functools.cache
def template():
    """Starts the template; the path of its socket."""
    path = os.path.join(tempfile.mkdtemp(), "socket")
    words = [sys.executable, "-m", "tests.support.forked", "--serve", path]
    server = subprocess.Popen(words, cwd=ROOT, stdin=subprocess.PIPE)
    atexit.register(server.wait)
    atexit.register(server.stdin.close)  # called first
    while not os.path.exists(path):
        assert server.poll() is None, "the template of processes has ended"
        time.sleep(0.01)
    return path


def _program(path):
    """Path of the stand-in for an interpreter; it is in the folder of the socket `path`."""
    return os.path.join(os.path.dirname(path), "python")


@functools.cache
def python():
    """Path of a program that runs modules and code as an interpreter would."""
    path = _program(template())
    with open(path, "w") as file:
        command = f'"{sys.executable}" -S -E "{__file__}" "{template()}"'
        file.write(f'#!/bin/sh\nexec {command} "$@"\n')
    os.chmod(path, 0o755)
    return path


class Process:
    """As much of `subprocess.Popen`, for this interpreter and text, as tests need.

    Args:
      arguments: ``-m``, a module and its arguments, or ``-c``, a program and those.
      cwd, env, start_new_session: as for `subprocess.Popen`.
      stdout, stderr: a file, `subprocess.PIPE`, `subprocess.DEVNULL`; of `stderr` also
        `subprocess.STDOUT`; None: those of this process.
    """

    def __init__(
        self, arguments, cwd=ROOT, env=None, stdout=None, stderr=None, start_new_session=False
    ):
        self.args, self.returncode = list(arguments), None
        self.stdout = self.stderr = None
        path, opened = template(), [os.open(os.devnull, os.O_RDWR)]
        files = [opened[0], 1, 2]
        for number, given in ((1, stdout), (2, stderr)):
            if given == subprocess.PIPE:
                ours, theirs = os.pipe()
                opened.append(theirs)
                setattr(self, ("stdout", "stderr")[number - 1], open(ours))  # noqa: SIM115
            else:
                named = {None: number, subprocess.DEVNULL: opened[0], subprocess.STDOUT: files[1]}
                theirs = named[given] if given in named else given.fileno()
            files[number] = theirs
        self._connection = ask(path, arguments, files, cwd, env, start_new_session)
        for file in opened:
            os.close(file)
        self._answers = self._connection.makefile()
        self.pid = int(self._answers.readline())

    def poll(self):
        if self.returncode is None and select.select([self._connection], [], [], 0)[0]:
            self.returncode = int(self._answers.readline())
        return self.returncode

    def wait(self, timeout=None):
        if self.returncode is None:
            select.select([self._connection], [], [], timeout)
        if self.poll() is None:
            raise subprocess.TimeoutExpired(self.args, timeout)
        return self.returncode

    def send_signal(self, kind):
        if self.poll() is None:
            os.kill(self.pid, kind)

    def kill(self):
        self.send_signal(signal.SIGKILL)

    def communicate(self, timeout=None):
        """The rest of both outputs, None for one that is no pipe, once the process has ended.

        One that does not end in time is ended, and the failure says what its threads did.
        """
        found = {}
        readers = [
            threading.Thread(target=lambda f=f: found.update({f: f.read()}), daemon=True)
            for f in (self.stdout, self.stderr)
            if f
        ]
        for reader in readers:
            reader.start()
        is_late = False
        try:
            self.wait(timeout)
        except subprocess.TimeoutExpired:
            is_late = True
            self.send_signal(signal.SIGABRT)
            self.wait(10)
        for reader in readers:
            reader.join()
        assert not is_late, f"no end within {timeout} s: {found.get(self.stderr)}"
        return found.get(self.stdout), found.get(self.stderr)


def main(arguments):
    """The template, or a program that stands in for an interpreter."""
    if arguments[0] == "--serve":
        serve(arguments[1])
        return
    with ask(arguments[0], arguments[1:], [0, 1, 2]) as connection, connection.makefile() as told:
        _, status = (int(line) for line in told)
    sys.exit(status if status >= 0 else 128 - status)


if __name__ == "__main__":
    main(sys.argv[1:])

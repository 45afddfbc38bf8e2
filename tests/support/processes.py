"""Programs that tests run, wait for and stop."""

import contextlib
import os
import signal
import subprocess
import time


def run(words, **options):
    """Runs a program to its end without input; options are those of `subprocess.run`."""
    options = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True, **options}
    return subprocess.run(words, **options)


def wait_until(condition, *processes, seconds=300, say=lambda: ""):
    """Waits for a condition.

    Args:
      condition: function without arguments.
      *processes: they must not end before.
      seconds: the maximum time.
      say: function without arguments; what a failure says, such as the end of a log.
    """
    deadline = time.monotonic() + seconds
    while not condition():
        ended = [process.returncode for process in processes if process.poll() is not None]
        assert not ended, f"a process has ended with status {ended[0]}: {say()}"
        assert time.monotonic() < deadline, f"nothing for {seconds} seconds: {say()}"
        time.sleep(0.005)


def interrupt(process, running, kind=signal.SIGINT, status=130):
    """Ctrl-C, or another signal, for a script once `running` names a process of its; its output.

    Both must have ended long before that process would by itself.
    """
    wait_until(lambda: running.exists() and running.read_text().strip(), process)
    os.killpg(process.pid, kind)
    output, _ = process.communicate(timeout=30)
    assert process.returncode == status
    with contextlib.suppress(ProcessLookupError):
        os.kill(int(running.read_text()), 0)
        raise AssertionError("the process that the script waited for still runs")
    return output


@contextlib.contextmanager
def killed_at_the_end(processes):
    """However the block ends, no process of the list still runs."""
    try:
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.wait()

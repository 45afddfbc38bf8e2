"""One writer a folder: who is refused, who waits, and what is taken over."""

import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import threading
import time
from concurrent import futures

import pytest

from albert.io import file_io, locks
from tests.support.processes import killed_at_the_end, wait_until

# Holds the lock of a folder until a file `stop` is there.
HOLDER = """
import os, sys, time
from albert.io import locks
with locks.written_by_one(sys.argv[1]):
    print("held", flush=True)
    while not os.path.exists(sys.argv[1] + "/stop"):
        time.sleep(0.01)
"""


def start(folder, program=HOLDER):
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(folder)],
        cwd=pathlib.Path(__file__).parent.parent.parent, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout.readline() == "held\n", process.stderr.read()
    return process


def lock_of(folder):
    return json.loads((folder / ".lock").read_text())


def hold(folder):
    """Takes and releases the lock."""
    with locks.written_by_one(str(folder)):
        assert lock_of(folder)["pid"] == os.getpid()
    assert os.listdir(folder) in ([], ["stop"])


def rewrite(folder, **changes):
    (folder / ".lock").write_text(json.dumps({**lock_of(folder), **changes}))


def test_a_second_writer_is_refused_by_name(tmp_path):
    with killed_at_the_end([start(tmp_path)]) as (process,):
        message = rf"process {process.pid} on \S+ \(-c, since 20.*\) writes to {tmp_path}\. Wait"
        with pytest.raises(file_io.InputError, match=message):
            hold(tmp_path)
        (tmp_path / "stop").touch()
        assert process.wait(30) == 0
        hold(tmp_path)


def test_a_writer_that_was_killed_is_replaced_at_once(tmp_path, caplog):
    with killed_at_the_end([start(tmp_path)]) as (process,):
        process.kill()  # and not yet waited for: a zombie
        wait_until(lambda: "Z" in pathlib.Path(f"/proc/{process.pid}/stat").read_text())
        assert lock_of(tmp_path)["pid"] == process.pid
        hold(tmp_path)
    assert f"{tmp_path}/.lock is from process {process.pid} on" in caplog.text
    assert "which has ended: taking over" in caplog.text


def test_ctrl_c_leaves_no_lock(tmp_path):
    with killed_at_the_end([start(tmp_path)]) as (process,):
        process.send_signal(signal.SIGINT)
        process.wait(30)
    assert os.listdir(tmp_path) == []


def test_a_number_of_a_process_that_was_given_again(tmp_path, caplog):
    with locks.written_by_one(str(tmp_path)):
        kept = (tmp_path / ".lock").read_text()
    (tmp_path / ".lock").write_text(kept)
    with pytest.raises(file_io.InputError, match="writes to"):  # this very process
        hold(tmp_path)
    rewrite(tmp_path, process_start="1")
    hold(tmp_path)
    assert "has ended: taking over" in caplog.text


@pytest.mark.slow
def test_another_machine_is_lost_when_its_heartbeat_stays_away(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(locks, "HEARTBEAT_SECONDS", 0.1)

    def check(content):
        folder = tmp_path / str(contents.index(content))
        folder.mkdir()
        path = folder / ".lock"
        with locks.written_by_one(str(folder)):
            kept = path.read_text()
        path.write_text(kept)
        rewrite(folder, machine="another", host="far", pid=7)
        if content is not None:
            path.write_bytes(content.encode("latin-1"))
        who = "a process that" if content is not None else "process 7 on far"
        with futures.ThreadPoolExecutor() as pool:
            pool.submit(lambda: time.sleep(0.3) or os.utime(path))
            with pytest.raises(file_io.InputError, match=f"{who}.*no longer runs, delete {path}"):
                hold(folder)
        assert os.listdir(folder) == [".lock"]
        hold(folder)
        assert re.search(f"{path} .*has sent no heartbeat for 1 seconds: taking over", caplog.text)

    contents = [None, "", "[3]", "[" * 9999, '{"since": "x"}', "\xff"]
    with futures.ThreadPoolExecutor(len(contents)) as pool:  # each waits for most of its time
        list(pool.map(check, contents))


def test_the_heart_beats_and_a_lost_lock_is_noticed(tmp_path, monkeypatch):
    monkeypatch.setattr(locks, "HEARTBEAT_SECONDS", 0.02)
    path = tmp_path / ".lock"
    with locks.written_by_one(str(tmp_path)) as lock:
        os.utime(path, (5, 5))
        wait_until(lambda: path.stat().st_mtime > 5)
        path.unlink()
        wait_until(path.exists)
        lock.check()
        rewrite(tmp_path, host="far", pid=7)

        def is_lost():
            try:
                lock.check()
            except file_io.InputError as error:
                return "process 7 on far" in str(error) and "this process ends" in str(error)

        wait_until(is_lost)
    assert lock_of(tmp_path)["host"] == "far"  # not ours to delete
    assert not [t for t in threading.enumerate() if t.name == "heartbeat"]


def test_of_many_that_take_over_one_wins(tmp_path):
    """The file of a faster process is not removed as the stale one."""
    for _ in range(20):
        with locks.written_by_one(str(tmp_path)):
            kept = (tmp_path / ".lock").read_text()
        (tmp_path / ".lock").write_text(kept)
        rewrite(tmp_path, process_start="1")
        held = [locks.Lock(str(tmp_path / ".lock")) for _ in range(2)]
        stale = (tmp_path / ".lock").read_text()
        assert held[0].acquire() is None
        assert not held[1]._remove(stale)  # judged before the first took over
        holder = held[1].acquire()
        assert holder["since"] == lock_of(tmp_path)["since"]
        held[0].release()


def test_a_file_is_made_by_one_and_awaited_by_the_others(tmp_path, caplog):
    path, turns = tmp_path / "records", []

    def work(name):
        with locks.made_by_one(str(path)):
            turns.append(f"{name} in")
            end = time.monotonic() + 60
            while len(turns) == 1 and "Waiting for" not in caplog.text and time.monotonic() < end:
                time.sleep(0.01)
            turns.append(f"{name} out")

    caplog.set_level("INFO", logger="absl")
    threads = [threading.Thread(target=work, args=(name,)) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [turn[2:] for turn in turns] == ["in", "out", "in", "out"]
    assert f"Waiting for process {os.getpid()} on" in caplog.text
    assert f"which makes {path}" in caplog.text
    assert os.listdir(tmp_path) == []
    with locks.made_by_one(str(tmp_path / "no folder" / "records")):
        pass


def test_one_process_at_a_time_is_in_a_locked_block(tmp_path):
    path, events = str(tmp_path / "lock"), []

    def wait():
        with locks.locked(path) as waited:
            events.append(waited)

    with locks.locked(path) as waited:
        assert not waited
        thread = threading.Thread(target=wait)
        thread.start()
        thread.join(0.2)
        assert thread.is_alive() and not events
    thread.join(10)
    assert events == [True]


def test_programs_that_inherit_a_lock_hold_it(tmp_path, monkeypatch):
    monkeypatch.setattr(locks, "ORPHAN_SECONDS", 0.1)
    path = str(tmp_path / "lock")
    with locks.inherited(path, "works", "its programs run") as descriptor:
        program = subprocess.Popen(["sleep", "60"], pass_fds=(descriptor,))
        assert (tmp_path / "lock").read_text() == str(os.getpid())
    with killed_at_the_end([program]):
        (tmp_path / "lock").write_text("0")
        lock = locks.inherited(path, "works", "its programs run")
        with pytest.raises(file_io.InputError, match="its programs run"), lock:
            pass
    program.wait()
    with locks.inherited(path, "works", "its programs run"):
        pass

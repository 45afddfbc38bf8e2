"""Notes about clients, and how many connections there may be; the rest needs a server."""

import asyncio
import resource

import pytest

http_connections = pytest.importorskip("albert.serving.http_connections")


def test_events_of_a_kind_have_one_line_and_then_a_number(monkeypatch, caplog):
    monkeypatch.setattr(http_connections, "NOTE_SECONDS", 0.05)

    async def events():
        notes = http_connections.Notes()
        for number in range(100):
            notes.add("Bad", f"number\n{number} \x1b[31m" + "x" * 1000)
        notes.add("Gone", "one")
        await asyncio.sleep(0.2)
        notes.add("Bad", "again")
        notes.add("Bad", "again")
        notes.close()

    asyncio.run(events())
    lines = [record.getMessage() for record in caplog.records]
    assert lines[0].startswith("Bad: number 0 \\x1b[31mxxx") and len(lines[0]) < 220
    assert lines[1:] == [
        "Gone: one", "Bad: 99 more in 0.05 seconds", "Bad: again", "Bad: 1 more in 0.05 seconds"
    ]  # fmt: skip


def test_other_mistakes_of_the_loop_are_not_hidden(caplog):
    async def fail():
        loop, notes = asyncio.get_running_loop(), http_connections.Notes()
        loop.set_exception_handler(notes.log_loop_error)
        for error in (OSError(24, "Too many open files"), ValueError("a mistake")):
            loop.call_exception_handler({"message": "said", "exception": error})

    asyncio.run(fail())
    first, second = caplog.records
    assert first.getMessage() == "A connection failed: said: [Errno 24] Too many open files"
    assert first.exc_info is None and second.exc_info[0] is ValueError


@pytest.mark.parametrize(("limit", "most"), [(10_000, 512), (400, 300), (40, 30)])
def test_connections_leave_file_handles(monkeypatch, limit, most):
    monkeypatch.setattr(resource, "getrlimit", lambda _: (limit, limit))
    found = http_connections.Connections(512, None, None).limit
    assert 1 <= found <= most and (found == 512) == (most == 512)


def test_no_bytes_of_a_request_are_repeated():
    error = ValueError("Got more than 8190 bytes when reading: b'secret'")
    assert http_connections.what_is_wrong(error) == "Got more than 8190 bytes when reading"

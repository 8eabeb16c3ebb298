"""The audit log: every line once, no secret ever, and a slow disk slows nobody."""

import asyncio
import json
import os
import time
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairway.api import policy
from fairway.proxy.middleware.audit import MAX_ARGUMENTS, REDACTED, AuditLog, Entry, Redactor, kept

pytestmark = pytest.mark.anyio


def entry(number: int = 0, **changed: object) -> Entry:
    plain = Entry(
        1_800_000_000.5 + number, "default/weather", "tools/call", "alice", 200, 12.3, f"t{number}", "https://idp"
    )
    return msgspec.structs.replace(plain, **changed)


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


async def written(path: Path, *entries: Entry, **config: object) -> list[dict[str, object]]:
    log = AuditLog(policy.Audit(file=str(path), **config))  # type: ignore[arg-type]
    for one in entries:
        log.append(one)
    await log.aclose()
    return lines(path)


async def test_a_line_says_who_did_what_and_how_it_ended(tmp_path):
    said = await written(tmp_path / "log", entry(trace="ab", peer="10.0.0.1", session="d1", detail="policy x"))
    assert said == [
        {
            "time": 1_800_000_000.5, "event": "request", "route": "default/weather", "method": "tools/call",
            "outcome": "success", "status": 200, "ms": 12.3, "subject": "alice", "name": "t0", "issuer": "https://idp",
            "trace": "ab", "peer": "10.0.0.1", "session": "d1", "detail": "policy x",
        }
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("status", "code", "outcome"),
    [(200, 0, "success"), (202, 0, "success"), (200, -32602, "failure"), (401, 401, "denied"), (403, 403, "denied"),
     (429, 429, "denied"), (400, -32600, "failure"), (503, 503, "failure")],
)  # fmt: skip
async def test_the_outcome_is_one_of_three(tmp_path, status, code, outcome):
    (line,) = await written(tmp_path / "log", entry(status=status, code=code))
    assert line["outcome"] == outcome


async def test_no_name_can_forge_a_line(tmp_path):
    evil = 'x"}\n{"event":"request","subject":"root"}\r\n\u2028\u2029\x85\0'
    said = await written(tmp_path / "log", entry(name=evil, subject=evil, method=evil))
    assert len(said) == 1
    assert said[0]["name"] == evil


async def test_half_a_character_in_a_name_loses_no_line(tmp_path):
    said = await written(
        tmp_path / "log", entry(0), entry(1, name="\ud800"), entry(2, arguments=b"[1]"), arguments=True
    )
    assert [line["name"] for line in said] == ["t0", "\ud800", "t2"]
    assert said[2].keys() - said[0].keys() == {"arguments"}


async def test_arguments_are_written_only_where_that_is_asked_for_and_without_secrets(tmp_path):
    raw = json.dumps(
        {
            "city": "Paris",
            "apiKey": "k1",
            "API_KEY": "k2",
            "nested": [{"Password": "k3", "x": {"access-token": "k4"}}],
            "pin": 1,
        }
    ).encode()
    (line,) = await written(tmp_path / "a", entry(arguments=raw))
    assert "arguments" not in line
    (line,) = await written(tmp_path / "b", entry(arguments=raw), arguments=True, redact=("Pin",))
    assert line["arguments"] == {
        "city": "Paris", "apiKey": REDACTED, "API_KEY": REDACTED,
        "nested": [{"Password": REDACTED, "x": {"access-token": REDACTED}}], "pin": REDACTED,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        (b"{", "[not JSON]"),
        (b"\xff", "[not JSON]"),
        (b"[" * 9000, "[9000 bytes]"),
        (b"[" * 8000, "[not JSON]"),
        (b"null", None),
    ],
)
async def test_arguments_that_cannot_be_shown_are_said_to_be_there(tmp_path, raw, shown):
    (line,) = await written(tmp_path / "log", entry(arguments=raw), arguments=True)
    assert line["arguments"] == shown


NAMES = st.sampled_from(["a", "TOKEN", "set-cookie", "my_pin"])


@given(
    st.recursive(
        st.text(max_size=5) | st.integers(),
        lambda value: st.lists(value, max_size=3) | st.dictionaries(NAMES, value, max_size=3),
        max_leaves=10,
    )
)
def test_no_secret_survives_at_any_depth(value):
    def strip(found: object) -> None:
        match found:
            case dict():
                for name, member in found.items():
                    if name in ("TOKEN", "set-cookie", "my_pin"):
                        assert member == REDACTED
                    strip(member)
            case list():
                for item in found:
                    strip(item)

    strip(Redactor(["MyPin"]).arguments(json.dumps(value).encode()))


def test_headers_lose_their_secrets():
    assert Redactor().headers({"Authorization": "Bearer x", "Cookie": "y", "X-Api-Key": "z", "Accept": "a"}) == {
        "Authorization": REDACTED,
        "Cookie": REDACTED,
        "X-Api-Key": REDACTED,
        "Accept": "a",
    }


async def test_lines_come_in_order_and_by_themselves(tmp_path):
    path = tmp_path / "log"
    log = AuditLog(policy.Audit(file=str(path)), interval=0.01)
    running = asyncio.create_task(log.run())
    for number in range(500):
        log.append(entry(number))
        if number % 50 == 0:
            await asyncio.sleep(0.005)
    await log.flush()
    assert [line["name"] for line in lines(path)] == [f"t{n}" for n in range(500)]
    assert log.counts.written == 500
    running.cancel()
    await log.aclose()


async def test_a_batch_is_one_write(tmp_path, monkeypatch):
    calls = []
    write = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: calls.append(len(data)) or write(fd, data))
    said = await written(tmp_path / "log", *(entry(n) for n in range(1000)))
    assert len(said) == 1000
    assert len(calls) == 1


async def test_a_log_that_is_moved_away_is_begun_anew(tmp_path):
    path = tmp_path / "log"
    log = AuditLog(policy.Audit(file=str(path)))
    log.append(entry(1))
    await log.flush()
    path.rename(tmp_path / "log.1")
    log.append(entry(2))
    await log.flush()
    path.unlink()
    log.append(entry(3))
    await log.aclose()
    assert [line["name"] for line in lines(tmp_path / "log.1")] == ["t1"]
    assert [line["name"] for line in lines(path)] == ["t3"]


async def test_a_pipe_that_nobody_reads_stops_nobody_and_the_gap_is_told(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    log = AuditLog(policy.Audit(file=str(path), queue=1000), interval=0.01)
    running = asyncio.create_task(log.run())
    slowest = 0.0
    for number in range(5000):
        began = time.perf_counter()
        log.append(entry(number))
        slowest = max(slowest, time.perf_counter() - began)
        if number % 100 == 0:
            await asyncio.sleep(0.002)
    dropped = log.counts.dropped
    assert dropped >= 2000
    assert slowest < 0.05
    received = bytearray()

    def drain() -> None:
        while True:
            try:
                data = os.read(reader, 1 << 16)
            except BlockingIOError:
                return
            if not data:
                return
            received.extend(data)

    async with asyncio.timeout(10):
        flushing = asyncio.create_task(log.flush())
        while not flushing.done():
            drain()
            await asyncio.sleep(0.001)
    running.cancel()
    await log.aclose()
    drain()
    os.close(reader)
    said = [json.loads(line) for line in received.splitlines()]
    requests = [line for line in said if line["event"] == "request"]
    gaps = [line["dropped"] for line in said if line["event"] == "gap"]
    assert len(requests) + sum(gaps) == 5000, "every line is written or counted"
    assert sum(gaps) == dropped


async def test_a_file_that_cannot_be_written_is_counted_and_not_fatal(tmp_path):
    log = AuditLog(policy.Audit(file=str(tmp_path / "missing" / "log")))
    log.append(entry(1))
    await log.flush()
    assert (log.counts.written, log.counts.failed) == (0, 1)
    (tmp_path / "missing").mkdir()
    log.append(entry(2))
    await log.aclose()
    assert [line["name"] for line in lines(tmp_path / "missing" / "log")] == ["t2"]


async def test_closing_does_not_wait_for_a_reader_that_never_comes(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    log = AuditLog(policy.Audit(file=str(path)))
    log.append(entry(1))
    began = time.perf_counter()
    await log.aclose(within=0.05)
    assert time.perf_counter() - began < 2
    os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK))


async def test_standard_output_is_written_to_without_a_file(capfd):
    log = AuditLog(policy.Audit())
    log.append(entry(1))
    await log.aclose()
    assert json.loads(capfd.readouterr().out)["name"] == "t1"


def test_of_large_arguments_only_their_size_waits_to_be_written():
    raw = msgspec.Raw(b'"' + b"x" * MAX_ARGUMENTS + b'"')
    assert Redactor().arguments(kept(raw)) == f"[{len(raw)} bytes]"
    assert kept(msgspec.Raw(b'{"a":1}')) == b'{"a":1}'

"""What is fuzzed: each parser with what must be true of everything it lets through, whatever comes in.

A target takes bytes and raises `Wrong` (or lets any other exception out) when the parser is at fault. The first byte
says where the input is cut, so that one that is cut elsewhere is another input.
"""

import json
from collections.abc import Callable
from typing import Any, Final

from fairway.api.runconfig import Limits, Listen, Route, Upstream
from fairway.mcp import sse
from fairway.proxy import envelope, reader
from fairway.proxy.guards import build
from fairway.proxy.metrics import Counts
from fairway.proxy.parts import Parts
from fairway.proxy.pipeline import Policy, check_head
from fairway.proxy.request import FATE, Fate, Request

Target = Callable[[bytes], None]
MAX_BODY: Final = 1024


class Wrong(AssertionError):
    """A parser let something through that must not pass, or read it as something else."""


def _require(condition: object, what: str) -> None:
    if not condition:
        raise Wrong(what)


def _cut(data: bytes) -> list[bytes]:
    """The input in up to three pieces."""
    if not data:
        return [b""]
    where, data = data[0], data[1:]
    if where < 128 or len(data) < 2:
        return [data]
    first = 1 + (where * 7919) % (len(data) - 1)
    second = first + (where * 104729) % (len(data) - first)
    return [piece for piece in (data[:first], data[first:second], data[second:]) if piece]


# HTTP

_ROUTE: Final = Route(
    name="default/a",
    listen=Listen(port=1),
    upstream=Upstream(addresses=("127.0.0.1:2",)),
    limits=Limits(max_body=MAX_BODY),
)


def _policy() -> Policy:
    guards = build(_ROUTE.name, _ROUTE.policy, loopback=False, parts=Parts(), before=None)
    return Policy(_ROUTE, guards, Counts())


POLICY: Final = _policy()
_NEVER_PASSED: Final = tuple(name + b":" for name, fate in FATE.items() if fate is Fate.READ)


def _judge(request: Request) -> Any:
    request.policy = POLICY
    return check_head(request, POLICY)


def http(data: bytes) -> None:
    """Requests of clients: whole in one piece or in several, and of what passes nothing is left to be misread."""
    pieces = _cut(data)
    budget = reader.Budget(4 * MAX_BODY)
    reading = reader.RequestReader(_judge, budget)
    for piece in pieces:
        reading.feed(piece)
    for request in reading.ready:
        if request.refusal is None:
            _check_request(request)
    if len(pieces) > 1 and data[0] >= 192:
        whole = reader.RequestReader(_judge, reader.Budget(4 * MAX_BODY))
        whole.feed(b"".join(pieces))
        seen = [_seen(request) for request in reading.ready]
        _require(seen == [_seen(request) for request in whole.ready], "in pieces it reads differently")
    reading.stop()
    _require(budget.used == 0, "the budget is not given back")


def _seen(request: Request) -> tuple[Any, ...]:
    if request.refusal is not None:
        return (request.refusal.status,)
    return request.method, request.path, request.query, request.lines, request.others, request.body, request.keep_alive


def _check_request(request: Request) -> None:
    headers, body = request.headers, request.body
    _require(len(body) <= MAX_BODY, "a body beyond the limit")
    length = headers.get(b"content-length")
    if b"transfer-encoding" in headers:
        _require(length is None, "both a length and chunks")
        _require(headers[b"transfer-encoding"].strip().lower() == b"chunked", "an encoding that is not chunked")
        _require(b"transfer-encoding" not in request.repeated, "two encodings")
    elif length is None:
        _require(not body, "a body without framing")
    else:
        _require(length.strip().isdigit() and int(length) == len(body), "a body of another length")
    _require(b"content-length" not in request.repeated, "two lengths")
    _require(b"host" in headers and b"host" not in request.repeated, "not one Host")
    _require(not any(c in request.path + request.query for c in b" \r\n\0"), "a target that ends early")
    named = {name.strip().lower() + b":" for name in headers.get(b"connection", b"").split(b",") if name.strip()}
    for line in request.lines:
        _require(line.endswith(b"\r\n") and line.count(b"\n") == 1 and line.count(b"\r") == 1, "a header of two lines")
        _require(b"\0" not in line, "a zero byte in a header")
        lowered = line.lower()
        _require(not lowered.startswith(_NEVER_PASSED), "a header that is the proxy's own")
        _require(
            lowered.partition(b":")[0] + b":" not in named - {b"close:", b"keep-alive:"}, "a header of the connection"
        )


# JSON-RPC


def jsonrpc(data: bytes) -> None:
    """Bodies of requests: what passes means the same to a parser that takes the first of two members, and the last."""
    body = data[1:]
    try:
        found = envelope.read(body)
    except envelope.Unreadable:
        return
    first, last = _members(body, first=True), _members(body, first=False)
    _require(isinstance(first, dict) and isinstance(last, dict), "it is not an object")
    for message in (first, last):
        _require(message.get("jsonrpc") == "2.0", "another version")
        _require(message.get("method", "") == found.method, "another method")
        _require(("id" in message) == bool(len(found.id)), "another kind of message")
        params = message.get("params")
        _require(params is None or isinstance(params, dict), "params that are no object")
        name = (params or {}).get("name")
        _require(found.name() == (name if isinstance(name, str) else None), "another name")
    _require(not isinstance(first.get("id"), (bool, list, dict, float)), "an id that is none")
    for where in (first, first.get("params") or {}):
        _require(len({key.casefold() for key in where}) == len(where), "members that differ only in case")
    _require(not (found.method and ("result" in first or "error" in first)), "request and response at once")


class _Huge(int):
    """An integer with too many digits to be worth converting."""


def _int(text: str) -> int:
    return int(text) if len(text) < 400 else _Huge(0)


def _members(body: bytes, *, first: bool) -> Any:
    def take(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        return dict(reversed(pairs)) if first else dict(pairs)

    return json.loads(body.decode(), object_pairs_hook=take, parse_int=_int)


# server-sent events

_LIMIT: Final = 50


def events(data: bytes) -> None:
    """Streams of servers: wherever they are cut, the same events as one that reads them line by line."""
    pieces = _cut(data)
    splitter = sse.EventSplitter(limit=_LIMIT)
    blocks: list[bytes] = []
    try:
        for piece in pieces:
            blocks += splitter.feed(piece)
    except sse.EventTooLarge:
        return
    rest = splitter.rest()
    whole = b"".join(pieces)
    _require(b"".join(blocks) + rest == whole, "bytes are lost or made up")
    if _MARK not in whole:  # only the first line of a stream may begin with one, and here any event may
        # what is left over holds no event, or a reader by lines would find one more
        found = [event.data for event in map(sse.parse_event, blocks)]
        _require([data for data in found if data is not None] == _line_by_line(whole), "other events")
    block = next((block for block in blocks if block.strip(b"\r\n")), None)
    if block is not None:
        before, after = sse.parse_event(block), sse.parse_event(sse.with_data(block, b"changed"))
        _require((after.data, after.name, after.id) == (b"changed", before.name, before.id), "data is not replaced")


_MARK: Final = b"\xef\xbb\xbf"


def _line_by_line(stream: bytes) -> list[bytes]:
    """The data of the complete events, by the letter of the specification."""
    found: list[bytes] = []
    data: list[bytes] = []
    for line in stream.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")[:-1]:
        if not line:
            if data:
                found.append(b"\n".join(data))
            data = []
        elif line.partition(b":")[0] == b"data":
            data.append(line.partition(b":")[2].removeprefix(b" "))
    return found


TARGETS: Final[dict[str, Target]] = {"http": http, "jsonrpc": jsonrpc, "events": events}

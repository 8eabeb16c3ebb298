"""What attackers send, from data files: each case with the one answer that it must get.

A case is either raw bytes (`send`) or says how it differs from a good POST (`body`, `headers`, `tool`, `method`, ...).
Text in the files is latin-1 spelling: `\\xff` is that byte. A list is joined; `{of, times}` repeats, `{drip, every,
times}` sends piece by piece.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from fairway.mcp.protocol import LATEST_MODERN_VERSION, request_headers, request_meta

HERE = Path(__file__).parent
UNIT = HERE.parent / "unit" / "proxy" / "data"
GOOD_CALL = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"search","arguments":{"a":1}}}'
INVALID_REQUEST = -32600


@dataclass(frozen=True)
class Piece:
    """Bytes, and how many seconds to wait after they have been sent."""

    data: bytes
    wait: float = 0.0


@dataclass(frozen=True)
class Case:
    """What is sent on a connection of its own, and what must come back."""

    name: str
    pieces: tuple[Piece, ...]
    status: int
    """0 if nothing must come back."""
    code: int
    end: bool | None
    """Whether the proxy closes the connection after its answer; None if it may do either."""
    loopback: bool
    """Whether it goes to the listener that only this machine can reach."""
    seconds: float = 0.0
    """For how long the proxy waits, at least."""
    interim: bool = False
    """Whether 100 Continue comes first."""
    then: int = 0
    """The status of a second answer: to what comes behind the end of the message."""
    leave: bool = False
    """Whether the client goes away when everything has been sent."""


def cases() -> list[Case]:
    made = [case for path in sorted((HERE / "cases").glob("*.yaml")) for case in _file(path)]
    return [*made, *_heads(), *_envelopes(), *_origins()]


def _file(path: Path) -> Iterator[Case]:
    content = yaml.safe_load(path.read_text())
    for row in content["cases"]:
        row = {**content["defaults"], **row}
        pieces = _pieces(row["send"]) if "send" in row else (Piece(_post(row)),)
        yield Case(
            name=f"{path.stem}: {row['name']}",
            pieces=pieces,
            status=row["status"],
            code=row.get("code", INVALID_REQUEST),
            end=row.get("end", False),
            loopback=row.get("listener") == "loopback",
            seconds=row.get("seconds", 0.0),
            interim=row.get("interim", False),
            then=row.get("then", 0),
            leave=row.get("leave", False),
        )


def _pieces(send: Any) -> tuple[Piece, ...]:
    found: list[Piece] = []
    for part in send if isinstance(send, list) else [send]:
        if isinstance(part, Mapping) and "drip" in part:
            found += [Piece(part["drip"].encode("latin-1"), part["every"])] * part["times"]
        else:
            found.append(Piece(_bytes(part)))
    return tuple(found)


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        return value["of"] * value["times"]
    return "".join(map(_text, value)) if isinstance(value, list) else value


def _bytes(value: Any) -> bytes:
    return _text(value).encode("latin-1")


def _message(row: Mapping[str, Any]) -> Any:
    method = _text(row.get("method", "tools/call"))
    params: dict[str, Any] = {"name": row.get("name_value", _text(row.get("tool", "search")))}
    if row.get("era") == "modern":
        params["_meta"] = row.get("meta", request_meta(LATEST_MODERN_VERSION))
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


def _post(row: Mapping[str, Any]) -> bytes:
    if "body" in row:
        body = _bytes(row["body"]) + _bytes(row.get("suffix", ""))
    elif "cut" in row:
        body = GOOD_CALL[: row["cut"]]
    else:
        body = json.dumps(_message(row)).encode()
    lines: dict[str, Any] = {"Host": "localhost", "Content-Type": "application/json"}
    if row.get("era") == "modern":
        lines |= request_headers(LATEST_MODERN_VERSION, "tools/call", {"name": row.get("tool", "search")})
    lines |= row.get("headers", {})
    head = "".join(
        f"{name}: {_text(value)}\r\n"
        for name, values in lines.items()
        if values is not None
        for value in (values if isinstance(values, list) else [values])
    )
    path = row.get("path", "/mcp")
    return f"POST {path} HTTP/1.1\r\n{head}Content-Length: {len(body)}\r\n\r\n".encode("latin-1") + body


# what the unit tests have as data, over the wire


def _heads() -> Iterator[Case]:
    for row in yaml.safe_load((UNIT / "heads.yaml").read_text()):
        if "status" in row:
            data = row["send"].encode("latin-1") + b"x" * row.get("fill", 0)
            code = 403 if row["status"] == 403 else INVALID_REQUEST
            yield Case(f"reader: {row['name']}", (Piece(data),), row["status"], code, row.get("end"), False)


def _envelopes() -> Iterator[Case]:
    for row in yaml.safe_load((UNIT / "envelopes.yaml").read_text()):
        post = _post({"body": row["body"], "path": "/large"})
        yield Case(f"envelope: {row['name']}", (Piece(post),), 400, row["code"], None, False)


def _origins() -> Iterator[Case]:
    for row in yaml.safe_load((UNIT / "origins.yaml").read_text()):
        if row["allowed"]:
            continue
        headers = {"Host": row["host"]} | ({"Origin": row["origin"]} if "origin" in row else {})
        loopback = row.get("loopback", False)
        status = 400 if not _is_name(row["host"]) else 403
        post = _post({"headers": headers})
        code = 403 if status == 403 else INVALID_REQUEST
        yield Case(f"origin: {row['name']}", (Piece(post),), status, code, None, loopback)


def _is_name(host: str) -> bool:
    return bool(host) and not any(c in host for c in "@/, ") and "http" not in host and ("[" in host) == ("]" in host)

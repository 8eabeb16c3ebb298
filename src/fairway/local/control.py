"""A running `fairway up` seen from another process: a socket in its state directory, one question a connection.

A question is one line of JSON, and so is the answer. Only the user who runs `up` can open the socket, and the values of
Secrets do not leave it.
"""

import asyncio
import json
import os
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import chdir, contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

import fairway
from fairway.controllers.rehearsal import NowAndThen, Verdict
from fairway.local.manifests import Key

SOCKET = "control.sock"
LONGEST = 64 << 20
_PATIENCE = 10.0
_ONE_AT_A_TIME = threading.Lock()
"""The working directory belongs to the whole process."""

Obj = Mapping[str, Any]


class NotRunning(Exception):
    """Nobody answers in this state directory."""


class Refused(Exception):
    """The running `up` understood and said no; the message says why."""


class Controlled(Protocol):
    """What can be asked of local mode."""

    def objects(self) -> list[dict[str, Any]]: ...
    def apply(self, objects: Mapping[Key, Obj]) -> list[str]: ...
    def remove(self, keys: Sequence[Key]) -> None: ...
    async def rehearse(self, objects: Mapping[Key, Obj]) -> NowAndThen: ...


class Control:
    """Answers while entered."""

    def __init__(self, directory: Path, mode: Controlled, *, stop: Callable[[], None] = lambda: None) -> None:
        self._directory = directory
        self._mode = mode
        self._stop = stop
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> "Control":
        (self._directory / SOCKET).unlink(missing_ok=True)
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        before = os.umask(0o177)
        try:
            with inside(self._directory):
                listening.bind(SOCKET)
        finally:
            os.umask(before)
        self._server = await asyncio.start_unix_server(self._answer, sock=listening, limit=LONGEST)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        (self._directory / SOCKET).unlink(missing_ok=True)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, ValueError, asyncio.IncompleteReadError):
            question = json.loads(await asyncio.wait_for(reader.readline(), _PATIENCE) or b"{}")
            writer.write(json.dumps(await self._done(question)).encode() + b"\n")
            await writer.drain()
        writer.close()

    async def _done(self, question: Mapping[str, Any]) -> dict[str, Any]:
        match question:
            case {"do": "objects"}:
                return {"objects": [_without_secrets(obj) for obj in self._mode.objects()]}
            case {"do": "apply", "objects": [*objects]}:
                try:
                    return {"notes": self._mode.apply({_key_of(obj): obj for obj in objects})}
                except Exception as error:  # whoever asked is told; what ran goes on
                    return {"refused": str(error)}
            case {"do": "rehearse", "objects": [*objects]}:
                now, then = await self._mode.rehearse({_key_of(obj): obj for obj in objects})
                return {"now": [_told(verdict) for verdict in now], "then": [_told(verdict) for verdict in then]}
            case {"do": "delete", "keys": [*keys]}:
                self._mode.remove([(str(kind), str(namespace), str(name)) for kind, namespace, name in keys])
                return {"notes": []}
            case {"do": "version"}:
                return {"version": fairway.__version__}
            case {"do": "stop"}:
                self._stop()
                return {"pid": os.getpid()}
            case _:
                return {"refused": "this `fairway up` is of another version; start it anew"}


def ask(directory: Path, question: Mapping[str, Any], *, connect: Callable[[Path], socket.socket] | None = None) -> Any:
    """The answer of the `up` that holds the directory; raises NotRunning or Refused."""
    with (connect or _connected)(directory) as connection, connection.makefile("rwb") as stream:
        try:
            stream.write(json.dumps(question).encode() + b"\n")
            stream.flush()
            answer = json.loads(stream.readline() or b"null")
        except (OSError, ValueError):
            answer = None
    if not isinstance(answer, dict):
        raise NotRunning(f"the `fairway up` of {directory} did not answer; is it just stopping?")
    if "refused" in answer:
        raise Refused(answer["refused"])
    return answer


def is_running(directory: Path) -> bool:
    try:
        _connected(directory).close()
    except NotRunning:
        return False
    return True


def _connected(directory: Path) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(_PATIENCE)
    try:
        with inside(directory):
            connection.connect(SOCKET)
    except OSError:
        connection.close()
        raise NotRunning(f"no `fairway up` runs here ({directory / SOCKET} does not answer)") from None
    return connection


@contextmanager
def inside(directory: Path) -> Iterator[None]:
    """The path of a socket may have no more than some 100 bytes, so it is named from within its directory."""
    with _ONE_AT_A_TIME, chdir(directory):
        yield


def _key_of(obj: Obj) -> Key:
    return obj["kind"], obj["metadata"]["namespace"], obj["metadata"]["name"]


def _told(verdict: Verdict) -> dict[str, Any]:
    return {
        "owner": verdict.owner,
        "acts": verdict.acts,
        "changes": [{"live": change.live, "wanted": change.wanted} for change in verdict.changes],
        "taken": [[ref.resource.kind, ref.namespace, ref.name] for ref in verdict.taken],
        "status": verdict.status,
    }


def _without_secrets(obj: dict[str, Any]) -> dict[str, Any]:
    return {**obj, "data": dict.fromkeys(obj.get("data") or {}, "")} if obj["kind"] == "Secret" else obj

"""What pods have beyond what all objects have: logs, exec, attach."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from urllib.parse import urlencode

from fairway.kube.channels import PROTOCOLS
from fairway.kube.remote import Remote
from fairway.kube.resource import POD
from fairway.kube.streams import Receiver, Streams
from fairway.kube.transport import Transport

_LONGEST_LOG = 16 << 20


class Pods:
    """Pods of one cluster. Where a pod has one container, its name may be left out."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def log(
        self,
        namespace: str,
        name: str,
        *,
        container: str = "",
        tail: int | None = None,
        since_seconds: int | None = None,
        previous: bool = False,
        timestamps: bool = False,
        max_bytes: int = _LONGEST_LOG,
    ) -> bytes:
        """What is there of a log: its last `tail` lines, or all; at most `max_bytes`, from the beginning."""
        query = _log_query(container, tail, since_seconds, previous=previous, timestamps=timestamps)
        url = _url(namespace, name, "log", [*query, ("limitBytes", str(max_bytes))])
        return (await self._transport.request("GET", url, accept="*/*")).body

    async def follow_log(
        self,
        namespace: str,
        name: str,
        *,
        container: str = "",
        tail: int | None = None,
        since_seconds: int | None = None,
        timestamps: bool = False,
    ) -> AsyncGenerator[bytes]:
        """The log as it is written, in pieces of any size, until the container ends.

        Raises Unreachable when the connection breaks before that. A container may be silent for as long as it likes.
        """
        query = _log_query(container, tail, since_seconds, previous=False, timestamps=timestamps)
        url = _url(namespace, name, "log", [*query, ("follow", "true")])
        async with aclosing(self._transport.chunks(url, accept="*/*", silence=None)) as chunks:
            async for chunk in chunks:
                yield chunk

    async def exec(
        self, namespace: str, name: str, command: Sequence[str], *, container: str = "", stdin: bool = False
    ) -> Remote:
        """Runs a command in a container. Needs the rights `get` and `create` on pods/exec.

        A command that cannot be started is an Exit without a code, not an error.
        """
        remote = Remote()
        await self._open(_url(namespace, name, "exec", _stream_query(container, stdin, command)), remote.streams)
        return remote

    async def attach(self, namespace: str, name: str, *, container: str = "", stdin: bool = False) -> Remote:
        """Joins a container's main process: output from now on, and its stdin if it has `stdin: true`.

        The end is an Exit with code 0 whatever the process exited with: the pod's status says that.
        """
        remote = Remote()
        await self.attach_to(remote.streams, namespace, name, container=container, stdin=stdin)
        return remote

    async def attach_to(
        self,
        streams: Streams,
        namespace: str,
        name: str,
        *,
        container: str = "",
        stdin: bool = False,
        stderr: bool = True,
    ) -> None:
        """Likewise, for whoever wants to be told of output in the moment that it comes."""
        query = _stream_query(container, stdin, (), stderr=stderr)
        await self._open(_url(namespace, name, "attach", query), streams)

    async def _open(self, url: str, streams: Streams) -> None:
        await self._transport.websocket(url, streams, PROTOCOLS)


def _url(namespace: str, name: str, subresource: str, query: Sequence[tuple[str, str]]) -> str:
    return f"{POD.path(namespace, name, subresource)}?{urlencode(query)}"


def _stream_query(container: str, stdin: bool, command: Sequence[str], *, stderr: bool = True) -> list[tuple[str, str]]:
    query = [("command", part) for part in command]
    query.append(("stdout", "true"))
    if stderr:
        query.append(("stderr", "true"))
    if stdin:
        query.append(("stdin", "true"))
    if container:
        query.append(("container", container))
    return query


def _log_query(
    container: str, tail: int | None, since_seconds: int | None, *, previous: bool, timestamps: bool
) -> list[tuple[str, str]]:
    given = {
        "container": container,
        "tailLines": "" if tail is None else str(tail),
        "sinceSeconds": "" if since_seconds is None else str(since_seconds),
        "previous": "true" if previous else "",
        "timestamps": "true" if timestamps else "",
    }
    return [(name, value) for name, value in given.items() if value]


__all__ = ["Pods", "Receiver"]

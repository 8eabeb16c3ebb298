"""Lists of the past: what a lagging API server would still show, taken from the real one at an older revision."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from tests.faultproxy.actions import StaleList
from tests.faultproxy.request import Request
from tests.faultproxy.upstream import Upstream
from tests.faultproxy.wire import Head, Message

INITIAL_EVENTS_END = "k8s.io/initial-events-end"


@dataclass(frozen=True, slots=True)
class OldList:
    """A list as it was at `revision`, or the API server's refusal to give it."""

    revision: int
    status: int
    content: Mapping[str, Any]

    @property
    def body(self) -> bytes:
        return json.dumps(self.content).encode()

    def head(self, *, chunked: bool) -> Head:
        length = None if chunked else len(self.body)
        headers = [(b"Content-Type", b"application/json")]
        if length is not None:
            headers.append((b"Content-Length", str(length).encode()))
        return Head(self.status, b"OK" if self.status == 200 else b"Error", headers, length=length)

    def as_events(self) -> bytes:
        """What a watch sends that was asked for initial events: every object, then the bookmark that ends them."""
        kind = str(self.content["kind"]).removesuffix("List")
        of_kind = {"apiVersion": self.content["apiVersion"], "kind": kind}
        bookmark = {"resourceVersion": str(self.revision), "annotations": {INITIAL_EVENTS_END: "true"}}
        events: list[dict[str, Any]] = [
            {"type": "ADDED", "object": {**of_kind, **item}} for item in self.content.get("items") or ()
        ]
        events.append({"type": "BOOKMARK", "object": {**of_kind, "metadata": bookmark}})
        return b"".join(json.dumps(event).encode() + b"\n" for event in events)


@dataclass
class StaleView:
    """Which kinds are still shown as they were, and until when."""

    frozen_until: dict[str, float] = field(default_factory=dict)

    async def listed(self, upstream: Upstream, message: Message, request: Request, action: StaleList) -> OldList:
        """The list that `request` asks for, as it was back then."""
        message = _list_message(message)
        _, newest = await upstream.json(message.aimed_at(with_query(message.target, limit="1")))
        now = int(newest["metadata"]["resourceVersion"])
        age = now - action.at if action.at else action.revisions
        while True:
            revision = max(1, now - age)
            target = with_query(message.target, resourceVersion=str(revision), resourceVersionMatch="Exact")
            status, content = await upstream.json(message.aimed_at(target))
            # The past ends at the last compaction: as old as there is, then.
            if status != 410 or age == 0:
                break
            age //= 2
        if action.frozen:
            self.frozen_until[request.resource] = asyncio.get_running_loop().time() + action.frozen
        return OldList(revision, status, content)

    async def thawed(self, request: Request) -> None:
        """Returns when watches of that kind may deliver again."""
        until = self.frozen_until.get(request.resource, 0.0)
        await asyncio.sleep(max(0.0, until - asyncio.get_running_loop().time()))


def is_first_look(request: Request) -> bool:
    """The request asks for everything there is, and not for the next page or for what changed since."""
    return (request.verb == "list" and "continue" not in _query(request.target)) or (
        request.verb == "watch" and request.initial_events
    )


def resumed(target: str, revision: int) -> str:
    """The same watch without initial events, from `revision` on."""
    return with_query(target, sendInitialEvents=None, resourceVersionMatch=None, resourceVersion=str(revision))


def with_query(target: str, **changes: str | None) -> str:
    query = {**_query(target), **changes}
    url = urlsplit(target)
    return urlunsplit(
        url._replace(query=urlencode({name: value for name, value in query.items() if value is not None}))
    )


def _list_message(message: Message) -> Message:
    """The plain list behind a list or a watch, answered as JSON that needs no unpacking."""
    target = with_query(
        message.target,
        watch=None,
        sendInitialEvents=None,
        allowWatchBookmarks=None,
        timeoutSeconds=None,
        resourceVersion=None,
        resourceVersionMatch=None,
    )
    accept = message.fields.get("accept", "").replace("as=PartialObjectMetadata;", "as=PartialObjectMetadataList;")
    bare = message.without(b"accept-encoding").without(b"accept")
    plain = "application/json" if "json" not in accept else accept
    return Message(bare.method, target, (*bare.headers, (b"Accept", plain.encode())))


def _query(target: str) -> dict[str, str]:
    return dict(parse_qsl(urlsplit(target).query, keep_blank_values=True))

"""What a server tells unasked, and who hears of it: nobody gets what is not surely his."""

from collections.abc import Callable, Collection
from typing import Any, Final

import msgspec

from fairway.mcp.protocol import Meta, Method
from fairway.proxy.bridge import messages
from fairway.proxy.bridge.exchange import Exchange
from fairway.proxy.bridge.link import Link
from fairway.proxy.bridge.messages import FromServer, Members
from fairway.proxy.bridge.sessions import Session, Sessions

_FLAGS: Final = {
    Method.TOOLS_LIST_CHANGED.value: ("toolsListChanged", "tools"),
    Method.PROMPTS_LIST_CHANGED.value: ("promptsListChanged", "prompts"),
    Method.RESOURCES_LIST_CHANGED.value: ("resourcesListChanged", "resources"),
}
"""By notification: its name in the filter of subscriptions/listen, and the capability that promises it."""


MAX_WATCHED: Final = 1024
"""Resources that one client may watch at a time."""
MAX_URI: Final = 4096


def too_many(uris: Collection[str]) -> str:
    """Why nobody may watch all these; empty if one may."""
    if len(uris) > MAX_WATCHED:
        return f"more than {MAX_WATCHED} resources"
    return f"a uri of more than {MAX_URI} characters" if any(len(uri) > MAX_URI for uri in uris) else ""


class Listener:
    """A `subscriptions/listen` of the modern era that is open."""

    __slots__ = ("exchange", "id", "kinds", "watched")

    def __init__(self, exchange: Exchange, request_id: bytes, kinds: frozenset[str]) -> None:
        self.exchange = exchange
        self.id = request_id
        self.kinds = kinds
        """The list_changed notifications that it asked for."""
        self.watched: set[str] = set()


class _Filter(msgspec.Struct, rename="camel"):
    tools_list_changed: bool | None = None
    prompts_list_changed: bool | None = None
    resources_list_changed: bool | None = None
    resource_subscriptions: list[str] | None = None


class News:
    """Passes notifications on, and keeps the server's own subscriptions to what somebody still wants."""

    def __init__(self, link: Link, sessions: Sessions) -> None:
        self._link = link
        self._sessions = sessions
        self._listeners: dict[Exchange, Listener] = {}
        self._watchers: dict[str, set[Session | Listener]] = {}
        self.dropped = 0
        """Notifications that nobody could be given."""

    def streams(self) -> list[Exchange]:
        own = [session.stream for session in self._sessions.all() if session.stream is not None]
        return [*own, *self._listeners]

    # subscriptions

    def listen(self, exchange: Exchange, request_id: bytes, params: Members) -> str | None:
        """Opens a stream of the modern era. Returns what is wrong with the request."""
        try:
            wanted = msgspec.json.decode(params.get("notifications", b"null"), type=_Filter)
        except (msgspec.MsgspecError, RecursionError) as error:
            return f"params.notifications: {error}"
        if why := too_many(wanted.resource_subscriptions or ()):
            return f"params.notifications.resourceSubscriptions: {why}"
        can = self._link.spoken.capabilities if self._link.spoken is not None else {}
        honoured: dict[str, Any] = {}
        kinds = set()
        asked = dict(
            zip(
                _FLAGS,
                (wanted.tools_list_changed, wanted.prompts_list_changed, wanted.resources_list_changed),
                strict=True,
            )
        )
        for method, (flag, capability) in _FLAGS.items():
            if asked[method] and _can(can, capability, "listChanged"):
                honoured[flag] = True
                kinds.add(method)
        listener = Listener(exchange, request_id, frozenset(kinds))
        if wanted.resource_subscriptions and _can(can, "resources", "subscribe"):
            honoured["resourceSubscriptions"] = wanted.resource_subscriptions
        self._listeners[exchange] = listener
        told = {"notifications": honoured, "_meta": {Meta.SUBSCRIPTION_ID.value: msgspec.Raw(request_id)}}
        exchange.event(messages.notification(Method.SUBSCRIPTIONS_ACKNOWLEDGED, messages.encode(told)))
        for uri in honoured.get("resourceSubscriptions", ()):
            self.watch(uri, listener)
        return None

    def watch(
        self, uri: str, watcher: Session | Listener, answered: Callable[[FromServer | None], None] | None = None
    ) -> None:
        """The server is asked once for everybody; `answered` gets what it says, or None if it had been asked before."""
        watchers = self._watchers.setdefault(uri, set())
        first = not watchers
        watchers.add(watcher)
        watcher.watched.add(uri)
        if not first:
            if answered is not None:
                answered(None)
            return

        def then(answer: FromServer | None) -> None:
            if answer is not None and len(answer.error):
                self._watchers.pop(uri, None)
                for each in watchers:
                    each.watched.discard(uri)
            if answered is not None:
                answered(answer)

        self._link.ask(Method.RESOURCES_SUBSCRIBE, messages.encode({"uri": uri}), then)

    def unwatch(self, uri: str, watcher: Session | Listener) -> None:
        watcher.watched.discard(uri)
        watchers = self._watchers.get(uri)
        if watchers is None:
            return
        watchers.discard(watcher)
        if not watchers:
            del self._watchers[uri]
            if self._link.up:
                self._link.ask(Method.RESOURCES_UNSUBSCRIBE, messages.encode({"uri": uri}), _nothing)

    def leave(self, watcher: Session | Listener) -> None:
        for uri in [*watcher.watched]:
            self.unwatch(uri, watcher)

    def hang_up(self, exchange: Exchange) -> None:
        listener = self._listeners.pop(exchange, None)
        if listener is not None:
            self.leave(listener)

    def resume(self) -> None:
        """The server is a new one, and knows nothing of what was subscribed."""
        for uri in self._watchers:
            self._link.ask(Method.RESOURCES_SUBSCRIBE, messages.encode({"uri": uri}), _nothing)
        capabilities = self._link.spoken.capabilities if self._link.spoken is not None else {}
        for method, (_, capability) in _FLAGS.items():
            if _can(capabilities, capability, "listChanged"):
                self._everybody(method, messages.notification(method))

    # notifications

    def heard(self, message: FromServer) -> bool:
        """Passes on what is for many. Returns False for what is not."""
        method = message.method
        if method in _FLAGS:
            self._everybody(method, messages.notification(method, message.params))
            return True
        if method == Method.RESOURCES_UPDATED:
            self._updated(message)
            return True
        return False

    def _everybody(self, method: str, body: bytes) -> None:
        for session in self._sessions.all():
            self.tell(session.stream, body)
        for listener in [*self._listeners.values()]:
            if method in listener.kinds:
                self.tell(listener.exchange, _stamped(body, listener.id))

    def _updated(self, message: FromServer) -> None:
        try:
            uri = _decode(message.params)["uri"]
        except (msgspec.MsgspecError, RecursionError, KeyError, TypeError):
            return
        body = messages.notification(message.method, message.params)
        for watcher in [*self._watchers.get(uri, ())]:
            if isinstance(watcher, Listener):
                self.tell(watcher.exchange, _stamped(body, watcher.id))
            else:
                self.tell(watcher.stream, body)

    def tell(self, stream: Exchange | None, body: bytes) -> None:
        if stream is None or not stream.open:
            self.dropped += 1
        elif stream.paused:
            # what it does not read would have to be kept for ever; it can come back and ask what is new
            self.hang_up(stream)
            self.dropped += 1
            stream.fail("the client does not read what it is sent")
        else:
            stream.event(body)


def _decode(raw: msgspec.Raw) -> Any:
    return msgspec.json.decode(raw)


def _can(capabilities: Any, name: str, detail: str) -> bool:
    found = capabilities.get(name)
    return isinstance(found, dict) and bool(found.get(detail))


def _stamped(body: bytes, subscription_id: bytes) -> bytes:
    """The notification as one of a subscription."""
    message: dict[str, Any] = messages.read_members(body)
    params: dict[str, Any] = messages.read_members(message["params"]) if "params" in message else {}
    meta: dict[str, Any] = messages.read_members(params["_meta"]) if "_meta" in params else {}
    meta[Meta.SUBSCRIPTION_ID.value] = msgspec.Raw(subscription_id)
    return messages.encode({**message, "params": {**params, "_meta": meta}})


def _nothing(_: FromServer | None) -> None:
    return None

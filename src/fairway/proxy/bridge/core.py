"""A bridge: many HTTP clients of both eras on one side, one server that reads and writes lines on the other. No I/O.

Theory of operation. The server is greeted once, in the session era, by the bridge itself; clients never talk to it
directly. Towards clients the bridge is a complete MCP endpoint in both eras: it opens and ends sessions, answers
`initialize` and `server/discover` from what the server said at the greeting, checks what the modern era demands, and
puts everything else on the server's line under an id of its own. What comes back goes to whoever asked, under his id.

What is not an answer goes to whom it surely belongs: progress to the owner of its token, changes of lists to all who
listen, changes of a resource to those who watch it. Everything else, which is requests of the server to its client, log
messages and what nobody knows, could be about anybody's business, as nothing in it says whose request made the server
send it: it passes only while exactly one session exists, nobody else is being served, and this run of the server has
never served another client: what it says may be late. Otherwise the server gets an error and the client nothing.

Clients' side: `exchange` makes the thing that a client's connection holds on to, and `receive` takes its request.
Server's side, for whatever carries the lines (a child's pipes, a websocket into a pod):

* `opened(transport, fresh=True)`: lines can be written; see `LineTransport`. `fresh` is False when the connection is
  a new one to the process that was greeted before: then it is not greeted again.
* `feed(data)`: bytes of the server's standard output, cut anywhere.
* `closed(reason)`: nothing can be written any more. Whoever waits for an answer gets an error that says `reason`, and
  until `opened` requests get 503. Sessions stay: the next server is greeted by the bridge.

`tick` has to be called about once a second. All calls come from one thread. `defer` is `loop.call_soon`, or a list in
tests.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final

import msgspec

from fairway.mcp import modern
from fairway.mcp.protocol import (
    LATEST_SESSION_VERSION,
    MODERN_VERSIONS,
    SESSION_VERSIONS,
    Era,
    ErrorCode,
    Meta,
    Method,
    era_of,
    http_status,
)
from fairway.proxy.bridge import legacy, messages
from fairway.proxy.bridge.call import Call
from fairway.proxy.bridge.exchange import Exchange
from fairway.proxy.bridge.lines import LineTransport
from fairway.proxy.bridge.link import Defer, Link
from fairway.proxy.bridge.messages import FromServer, Members
from fairway.proxy.bridge.news import News, too_many
from fairway.proxy.bridge.sessions import Session, Sessions
from fairway.proxy.envelope import Envelope
from fairway.proxy.request import Request
from fairway.proxy.upstream import Sink

_CONGESTED: Final = "the server does not keep up with its requests"
KEEP_ALIVE: Final = 15.0
"""Seconds between two signs of life on a stream."""
_LOCAL: Final = frozenset(
    {
        Method.INITIALIZE.value,
        Method.DISCOVER.value,
        Method.SUBSCRIPTIONS_LISTEN.value,
        Method.RESOURCES_SUBSCRIBE.value,
        Method.RESOURCES_UNSUBSCRIBE.value,
    }
)
"""Requests that are not simply passed on."""
_NOT_MODERN: Final = frozenset(
    {
        Method.INITIALIZE.value,
        Method.PING.value,
        Method.SET_LEVEL.value,
        Method.RESOURCES_SUBSCRIBE.value,
        Method.RESOURCES_UNSUBSCRIBE.value,
    }
)
"""Requests that the modern era has done away with."""
_NEEDS: Final = {
    Method.SAMPLING_CREATE.value: "sampling",
    Method.ELICITATION_CREATE.value: "elicitation",
    Method.ROOTS_LIST.value: "roots",
}
"""What a server may ask a client, and the capability that the client must have named."""
_ASKABLE: Final = frozenset(_NEEDS.values())
MAX_CALLS: Final = 1000
"""Of one session at a time, those included that nobody waits for any more."""
_SESSION_ERA: Final = frozenset({None, *(version.encode() for version in SESSION_VERSIONS)})


class Bridge:
    """One server. `changed` is called when it comes up and when it goes down. Ids follow on `last_id`."""

    def __init__(
        self, *, defer: Defer, clock: Callable[[], float], changed: Callable[[], None], last_id: int = 0
    ) -> None:
        self.defer: Final = defer
        self._clock = clock
        self._tell_changed = changed
        self.link = Link(defer=defer, heard=self._heard, changed=self._link_changed, last_id=last_id)
        self.sessions = Sessions()
        self.news = News(self.link, self.sessions)
        self._asked: dict[int, tuple[int | str, Session]] = {}
        """Requests of the server that a client is to answer, by the id that the client sees."""
        self._modern_calls = 0
        self._owner: str | None = None
        """The one client whom this run of the server has served."""
        self._several = False
        """Whether it has served another one too."""
        self._next_comment = 0.0
        self._was_up = False

    # the server's side

    def opened(self, transport: LineTransport, *, fresh: bool) -> None:
        if fresh:
            self._owner, self._several = None, False
        self.link.opened(transport, fresh=fresh)

    def feed(self, data: bytes) -> None:
        self.link.feed(data)

    def closed(self, reason: str) -> None:
        self._asked.clear()
        self.link.closed(reason)

    def _link_changed(self) -> None:
        if self.link.up and self._was_up:
            self.news.resume()
        self._was_up = self._was_up or self.link.up
        self._tell_changed()

    # the clients' side

    def exchange(self, sink: Sink, request: Request) -> Exchange:
        return Exchange(self, sink, accept=request.headers.get(b"accept", b""))

    def receive(self, exchange: Exchange, request: Request) -> None:
        """Answers, but never before it returns. The request has been found to agree with itself."""
        message = request.envelope
        if request.principal is not None and request.principal.key != self._owner:
            self._several = self._several or self._owner is not None
            self._owner = request.principal.key
        if request.legacy:
            legacy.receive(self, exchange, request)
        elif message is None:
            self.defer(partial(self._without_body, exchange, request))
        elif not self.link.up or self.link.congested():
            self.defer(partial(self._unavailable, exchange, message))
        elif not message.is_request or message.method in _LOCAL:
            self.defer(partial(self._aside, exchange, request, message))
        elif _is_modern(request):
            self._forward_modern(exchange, request, message)
        else:
            session = self._session(exchange, request)
            if session is not None:
                self._forward(exchange, session, message)

    def why_not(self) -> str:
        """Why the server takes nothing right now; empty if it does."""
        if not self.link.up:
            return self.link.why or "the server is not up"
        return _CONGESTED if self.link.congested() else ""

    def open_session(self, capabilities: Iterable[str]) -> Session:
        return self.sessions.open(_ASKABLE.intersection(capabilities), self._clock())

    def find_session(self, session_id: bytes) -> Session | None:
        return self.sessions.find(session_id, self._clock())

    def take(self, exchange: Exchange, session: Session, message: Envelope) -> None:
        """A message of the session era, of a session that has been found."""
        if not message.is_request or message.method in _LOCAL:
            self._aside_in_session(exchange, session, message)
        else:
            self._forward(exchange, session, message)

    def _unavailable(self, exchange: Exchange, message: Envelope) -> None:
        why = self.link.why or _CONGESTED
        exchange.unavailable(messages.refusal(bytes(message.id) or b"null", ErrorCode.INTERNAL_ERROR, why))

    def _session(self, exchange: Exchange, request: Request) -> Session | None:
        """The session of a request of the session era; if there is none, the request has been answered."""
        session = self.sessions.find(request.upstream_session, self._clock()) if request.upstream_session else None
        if session is None:
            if request.upstream_session:
                refused = partial(self._refuse, exchange, request, 404, "Session not found")
            else:
                refused = partial(self._refuse, exchange, request, 400, "Mcp-Session-Id is missing: initialize first")
            self.defer(refused)
        return session

    def _refuse(
        self, exchange: Exchange, request: Request, status: int, why: str, code: int = ErrorCode.INVALID_REQUEST
    ) -> None:
        exchange.finish(messages.refusal(request.request_id or b"null", code, why), status=status)

    # requests that the server answers

    def _forward(self, exchange: Exchange, session: Session, message: Envelope) -> None:
        if len(session.calls) >= MAX_CALLS:
            why = f"this session has {MAX_CALLS} requests at work already"
            refusal = messages.refusal(bytes(message.id), ErrorCode.INTERNAL_ERROR, why)
            self.defer(partial(exchange.unavailable, refusal))
            return
        call = self._call(exchange, message)
        call.session = session
        session.calls.add(call)
        params: dict[str, Any] | None = message.params
        if params is not None and "_meta" in params:
            meta: dict[str, Any] = _members(params["_meta"])
            if "progressToken" in meta:
                self._take_token(call, meta)
                params = {**params, "_meta": meta}
        self._send(call, params)

    def _send(self, call: Call, params: dict[str, Any] | None) -> None:
        self.link.request(call, call.number, call.method, messages.encode(params) if params is not None else b"")

    def _call(self, exchange: Exchange, message: Envelope) -> Call:
        call = Call(self, exchange, self.link.number(), bytes(message.id), message.method)
        exchange.call = call
        return call

    def _take_token(self, call: Call, meta: dict[str, Any]) -> None:
        token = meta.get("progressToken")
        if token is not None and bytes(token) != b"null":
            call.token = bytes(token)
            meta["progressToken"] = call.number

    def _forward_modern(self, exchange: Exchange, request: Request, message: Envelope) -> None:
        refused = _refused(request, message.method)
        if refused is not None:
            self.defer(partial(self._refuse_modern, exchange, message, refused))
            return
        call = self._call(exchange, message)
        call.modern = True
        self._modern_calls += 1
        params: dict[str, Any] = dict(message.params or {})
        meta: dict[str, Any] = messages.session_meta(_members(params.pop("_meta", msgspec.Raw(b""))))
        if meta:
            self._take_token(call, meta)
            params["_meta"] = meta
        self._send(call, params or None)

    def _refuse_modern(self, exchange: Exchange, message: Envelope, refused: modern.Refused) -> None:
        said: dict[str, Any] = {"code": int(refused.code), "message": refused.message}
        if refused.data is not None:
            said["data"] = refused.data
        body = messages.error(bytes(message.id) or b"null", messages.encode(said))
        exchange.finish(body, status=http_status(refused.code, Era.MODERN))

    # requests that the bridge answers, and what is no request

    def _aside(self, exchange: Exchange, request: Request, message: Envelope) -> None:
        if _is_modern(request):
            self._aside_modern(exchange, request, message)
        elif message.method == Method.INITIALIZE and len(message.id):
            self._initialize(exchange, message)
        elif message.method == Method.DISCOVER:
            # asked without the version header that makes it a question of the modern era
            self._refuse(exchange, request, 400, "Method not found: server/discover", ErrorCode.METHOD_NOT_FOUND)
        else:
            session = self._session(exchange, request)
            if session is not None:
                self._aside_in_session(exchange, session, message)

    def _aside_modern(self, exchange: Exchange, request: Request, message: Envelope) -> None:
        if not message.is_request:
            exchange.acknowledge()  # who cancels in this era hangs up; nothing else is of interest
            return
        refused = _refused(request, message.method)
        if refused is not None:
            self._refuse_modern(exchange, message, refused)
        elif message.method == Method.DISCOVER:
            exchange.finish(messages.result(message.id, self._discovered()))
        elif message.method == Method.SUBSCRIPTIONS_LISTEN:
            wrong = self.news.listen(exchange, bytes(message.id), message.params or {})
            if wrong is not None:
                self._refuse_modern(exchange, message, modern.Refused(ErrorCode.INVALID_PARAMS, wrong))

    def _discovered(self) -> bytes:
        greeting = self.link.greeting
        spoken = self.link.spoken
        assert spoken is not None
        capabilities = {k: v for k, v in spoken.capabilities.items() if k not in ("logging", "tasks")}
        found: dict[str, Any] = {
            "resultType": "complete",
            "supportedVersions": list(MODERN_VERSIONS),
            "capabilities": capabilities,
            "ttlMs": 0,
            "cacheScope": "private",
            "_meta": {Meta.SERVER_INFO.value: greeting.get("serverInfo", {"name": "unnamed", "version": ""})},
        }
        if "instructions" in greeting:
            found["instructions"] = greeting["instructions"]
        return messages.encode(found)

    def _initialize(self, exchange: Exchange, message: Envelope, session: Session | None = None) -> None:
        """Opens a session, unless the transport has opened one already."""
        try:
            asked = msgspec.json.decode(messages.encode(message.params), type=_Initialize)
        except (msgspec.MsgspecError, RecursionError):
            why = "params of initialize need protocolVersion, a string, and capabilities, an object"
            exchange.finish(messages.refusal(message.id, ErrorCode.INVALID_PARAMS, why))
            return
        if session is None:
            session = self.open_session(asked.capabilities)
        else:
            session.capabilities = _ASKABLE.intersection(asked.capabilities)
        exchange.finish(messages.result(message.id, self.greeting(asked.protocol_version)), session=session.id)

    def greeting(self, version: str) -> bytes:
        """The server's answer to initialize, in the revision that the client asked for if it can be had."""
        spoken = self.link.spoken
        assert spoken is not None
        known = SESSION_VERSIONS.index(spoken.version) if spoken.version in SESSION_VERSIONS else 0
        wanted = version if version in SESSION_VERSIONS else LATEST_SESSION_VERSION
        agreed = SESSION_VERSIONS[min(known, SESSION_VERSIONS.index(wanted))]
        return messages.encode({**self.link.greeting, "protocolVersion": agreed})

    def _aside_in_session(self, exchange: Exchange, session: Session, message: Envelope) -> None:
        if not message.method:
            self._client_answered(session, message)
            exchange.acknowledge()
        elif not len(message.id):
            self._client_notified(session, message)
            exchange.acknowledge()
        elif message.method == Method.INITIALIZE:
            self._initialize(exchange, message, session)
        elif message.method == Method.RESOURCES_SUBSCRIBE:
            self._watch(exchange, session, message)
        elif message.method == Method.RESOURCES_UNSUBSCRIBE:
            uri = _string((message.params or {}).get("uri"))
            if uri is not None:
                self.news.unwatch(uri, session)
            exchange.finish(messages.result(message.id, b"{}"))
        else:
            why = f"Method not found: {message.method}"
            exchange.finish(messages.refusal(message.id, ErrorCode.METHOD_NOT_FOUND, why))

    def _watch(self, exchange: Exchange, session: Session, message: Envelope) -> None:
        uri = _string((message.params or {}).get("uri"))
        why = "params.uri has to be a string" if uri is None else too_many([*session.watched, uri])
        if uri is None or why:
            exchange.finish(messages.refusal(message.id, ErrorCode.INVALID_PARAMS, why))
            return

        def answered(answer: FromServer | None) -> None:
            if answer is not None and len(answer.error):
                exchange.finish(messages.error(message.id, answer.error))
            else:
                exchange.finish(messages.result(message.id, b"{}"))

        self.news.watch(uri, session, answered)

    def _client_answered(self, session: Session, message: Envelope) -> None:
        number = int(message.id) if bytes(message.id).isdigit() and len(message.id) < 20 else 0
        asked = self._asked.get(number)
        if asked is None or asked[1] is not session:
            return
        del self._asked[number]
        request_id = messages.encode(asked[0])
        if len(message.error):
            line = messages.error(request_id, message.error)
        else:
            line = messages.result(request_id, message.result)
        self.link.send(line)

    def _client_notified(self, session: Session, message: Envelope) -> None:
        if message.method == Method.CANCELLED:
            params = message.params or {}
            wanted = bytes(params.get("requestId", b""))
            for call in [*session.calls]:
                if call.request_id == wanted:
                    self.cancel(call, params.get("reason"))
                    call.given_up("the request was cancelled")
        elif message.method != Method.INITIALIZED and self.sessions.only() is session:
            said = messages.encode(message.params) if message.params else b""
            self.link.notify(message.method, said)

    def _without_body(self, exchange: Exchange, request: Request) -> None:
        """GET opens the stream of a session, DELETE ends one."""
        if _is_modern(request) or request.method not in (b"GET", b"DELETE"):
            self._refuse(exchange, request, 405, "this server takes POST; GET and DELETE belong to sessions")
            return
        session = self._session(exchange, request)
        if session is None:
            return
        if request.method == b"DELETE":
            self.end_session(session)
            exchange.finish(b"{}")
        elif not exchange.takes_events:
            self._refuse(exchange, request, 406, "Accept has to admit text/event-stream")
        else:
            if session.stream is not None:
                session.stream.end()
            session.stream = exchange
            exchange.session = session
            exchange.start_stream()

    # ends

    def cancel(self, call: Call, reason: msgspec.Raw | None = None) -> None:
        """The server is told that nobody waits for the answer any more."""
        self.ended(call)
        self.link.give_up_on(call.number, reason)

    def ended(self, call: Call) -> None:
        if call.session is not None:
            call.session.calls.discard(call)
        if call.modern:
            self._modern_calls -= 1

    def dropped(self, exchange: Exchange, *, cancel: bool) -> None:
        """Nobody reads the answer any more."""
        self.news.hang_up(exchange)
        if exchange.session is not None and exchange.session.stream is exchange:
            exchange.session.stream = None
            if exchange.session.legacy:
                self.end_session(exchange.session)
        call = exchange.call
        if call is not None and call.number in self.link.pending and (cancel or call.modern):
            self.cancel(call)

    def end_session(self, session: Session) -> None:
        self.sessions.forget(session)
        self.news.leave(session)
        if session.stream is not None:
            session.stream.end()
            session.stream = None
        for call in [*session.calls]:
            self.cancel(call)
            call.given_up("the session has ended")
        for number, (request_id, owner) in [*self._asked.items()]:
            if owner is session:
                del self._asked[number]
                self._decline(request_id, ErrorCode.INTERNAL_ERROR, "the client has gone")

    def tick(self) -> None:
        now = self._clock()
        for session in self.sessions.expired(now):
            self.end_session(session)
        if now >= self._next_comment:
            self._next_comment = now + KEEP_ALIVE
            for stream in self.news.streams():
                if not stream.paused:
                    stream.comment()

    # what the server says beside answers

    def _heard(self, message: FromServer) -> None:
        if message.id is not None:
            self._server_asked(message.id, message)
        elif message.method == Method.PROGRESS:
            self._progress(message)
        elif message.method == Method.CANCELLED:
            self._server_cancelled(message)
        elif not self.news.heard(message):
            session = self._alone()
            outlet = None if session is None else self._outlet(session)
            if outlet is None or outlet.paused:
                self.news.dropped += 1
            else:
                outlet.event(messages.notification(message.method, message.params))

    def _progress(self, message: FromServer) -> None:
        params: dict[str, Any] = _members(message.params)
        token = bytes(params.get("progressToken", b""))
        call = self.link.pending.get(int(token)) if token.isdigit() and len(token) < 20 else None
        if not isinstance(call, Call) or not call.token or call.outlet.paused or not call.outlet.takes_events:
            self.news.dropped += 1
            return
        params["progressToken"] = msgspec.Raw(call.token)
        call.outlet.event(messages.notification(message.method, messages.encode(params)))

    def _alone(self) -> Session | None:
        """The one client that can have made the server say something; None if there are several, or none."""
        return None if self._modern_calls or self._several else self.sessions.only()

    def _outlet(self, session: Session) -> Exchange | None:
        """Where a session hears of something that need not be about any of its requests."""
        calls = [call for call in session.calls if call.outlet.open and call.outlet.takes_events]
        if len(calls) == 1 or (calls and session.stream is None):
            return max(calls, key=_number).outlet
        return session.stream

    def _server_asked(self, request_id: int | str, message: FromServer) -> None:
        method = message.method
        if method == Method.PING:
            self.link.send(messages.result(messages.encode(request_id), b"{}"))
            return
        if method not in _NEEDS:
            self._decline(request_id, ErrorCode.METHOD_NOT_FOUND, f"clients know no {method}")
            return
        session = self._alone()
        if session is None:
            why = "several clients share this server, or none is there: nobody can be asked"
            self._decline(request_id, ErrorCode.INVALID_REQUEST, why)
            return
        outlet = self._outlet(session)
        if _NEEDS[method] not in session.capabilities or outlet is None or outlet.paused:
            why = "the client cannot do that" if outlet is not None else "the client has no stream open"
            self._decline(request_id, ErrorCode.METHOD_NOT_FOUND, why)
            return
        number = self.link.number()
        self._asked[number] = (request_id, session)
        outlet.event(messages.request(number, method, message.params))

    def _decline(self, request_id: int | str, code: int, why: str) -> None:
        self.link.send(messages.refusal(messages.encode(request_id), code, why))

    def _server_cancelled(self, message: FromServer) -> None:
        """The server does not want its answer any more."""
        params: dict[str, Any] = _members(message.params)
        wanted = bytes(params.get("requestId", b""))
        for number, (request_id, session) in [*self._asked.items()]:
            if messages.encode(request_id) == wanted:
                del self._asked[number]
                outlet = self._outlet(session)
                if outlet is not None and not outlet.paused:
                    params["requestId"] = number
                    outlet.event(messages.notification(Method.CANCELLED, messages.encode(params)))


class _Initialize(msgspec.Struct, rename="camel"):
    protocol_version: str
    capabilities: dict[str, msgspec.Raw] = {}


def _is_modern(request: Request) -> bool:
    version = request.headers.get(b"mcp-protocol-version")
    return version not in _SESSION_ERA and era_of(request.text(b"mcp-protocol-version")) is Era.MODERN


def _refused(request: Request, method: str) -> modern.Refused | None:
    """What is wrong with a request of the modern era."""
    version = request.text(b"mcp-protocol-version") or ""
    if version not in MODERN_VERSIONS:
        return modern.unsupported(version)
    if method in _NOT_MODERN:
        return modern.Refused(ErrorCode.METHOD_NOT_FOUND, f"Method not found: {method}")
    return None


def _number(call: Call) -> int:
    return call.number


def _string(raw: msgspec.Raw | None) -> str | None:
    if raw is None:
        return None
    try:
        return msgspec.json.decode(raw, type=str)
    except msgspec.MsgspecError:
        return None


def _members(raw: msgspec.Raw) -> Members:
    try:
        return messages.read_members(raw) if len(raw) else {}
    except (msgspec.MsgspecError, RecursionError):
        return {}

"""What happens to a request between its last byte in and its first byte out, in a fixed order.

The head: Host and Origin, method, encodings, authentication. The message: envelope, agreement of headers and body,
session, rate limit, authorisation, tools, headers for the server. The first no decides. Nothing here waits: a token
that only others can judge leaves the request without a principal, and its connection has that settled in between.
"""

import re
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b
from time import time
from typing import Final

from msgspec import UNSET

from fairway.api.runconfig import Route
from fairway.api.toolview import ToolView
from fairway.mcp.actions import RULES, Access
from fairway.mcp.protocol import MODERN_VERSIONS, SESSION_ONLY, Era, ErrorCode, Method, encode_header_value, era_of
from fairway.mcp.protocol import unknown_tool as unknown_tool_message
from fairway.proxy import legacy
from fairway.proxy.agreement import check_agreement, check_id, refuse
from fairway.proxy.answers import Answer, Refusal, header_lines, unavailable
from fairway.proxy.endpoints import Place
from fairway.proxy.envelope import Envelope, Unreadable, read
from fairway.proxy.guards import NOBODY, Guards
from fairway.proxy.lists import Lists
from fairway.proxy.metrics import Counts
from fairway.proxy.middleware import seal
from fairway.proxy.middleware.audit import MAX_TEXT, Entry, kept
from fairway.proxy.middleware.origin import may_see_origin
from fairway.proxy.middleware.seal import Session
from fairway.proxy.request import Request

METHODS: Final = frozenset({b"POST", b"GET", b"DELETE", b"OPTIONS", b"HEAD"})
LABELS: Final = {str(method): str(method) for method in Method}
"""Methods that metrics name; whatever else clients send is counted as one."""
LISTS: Final = frozenset(method for method, rule in RULES.items() if rule.access is Access.LIST)
CLOSED: Final = unavailable("the policy of this server cannot be used", retry_after=5)
PARAMS: Final = {method: rule.param for method, rule in RULES.items() if rule.param}
_ABOLISHED: Final = Refusal(404, "Method not found", ErrorCode.METHOD_NOT_FOUND)
_ONCE: Final = frozenset({b"authorization", b"content-type", b"origin", b"mcp-session-id"})
"""Headers that decide something: of two, nobody could say which one others go by."""
_JSON: Final = re.compile(rb'application/json[ \t]*(;[ \t]*charset=(utf-8|"utf-8"|utf8)[ \t]*)?;?[ \t]*', re.IGNORECASE)
_NOT_JSON: Final = Refusal(415, "the body of a request must be application/json, in UTF-8")
_VIEWED: Final = frozenset({"tools/call", "tools/list"})
_NO_LETTERS: Final = re.compile(r"[^a-z/]")
_NEWER: Final = (b"mcp-method", b"mcp-name")
"""What the old transport does not know, so that nobody has compared it with the body."""
_PREFLIGHT: Final = (b"access-control-request-method", b"access-control-request-headers")
"""Where no origins are configured, it is the server that answers to pages of this machine."""


@dataclass(slots=True)
class Policy:
    """One route's settings, ready for use. Never changed: a reload makes a new one."""

    route: Route
    guards: Guards | None
    """None if the policy cannot be used, and no earlier one is there: then nobody is let in."""
    counts: Counts
    view: ToolView | None = field(init=False)
    """None when all tools pass as they are."""
    rewrites: bool = field(init=False)
    """Whether clients see other lists than the server's."""
    legacy: bool = field(init=False)
    """Whether clients are served the old HTTP+SSE transport."""
    max_body: int = field(init=False)
    connect_seconds: float = field(init=False)
    call_seconds: float = field(init=False)

    def __post_init__(self) -> None:
        view = self.route.tools.view()
        self.view = None if view.passes_everything else view
        self.rewrites = self.view is not None or (self.guards is not None and self.guards.authorizer is not None)
        self.legacy = self.route.listen.mode == "sse"
        self.max_body = self.route.limits.max_body
        self.connect_seconds = self.route.timeouts.connect
        self.call_seconds = self.route.timeouts.call

    def lists(self, request: Request) -> Lists:
        """How the sender of a request sees lists."""
        return Lists(self.view, None if self.guards is None else self.guards.authorizer, request.principal)


# the head


def check_head(request: Request, policy: Policy) -> Refusal | Answer | None:
    """What can be decided before the body is there. Leaves `request.principal` unset if that needs others to say."""
    guards, counts = policy.guards, policy.counts
    if guards is None:
        return CLOSED
    if request.method not in METHODS:
        return Refusal(405, "the MCP endpoint takes POST, GET and DELETE", headers=(("Allow", "POST, GET, DELETE"),))
    if request.repeated:
        for name in request.repeated:
            if name in _ONCE:
                return Refusal(400, f"the header {name.decode()} is there twice")
    host = request.text(b"host") or ""
    origin = request.text(b"origin") if b"origin" in request.headers else None
    counts.origin += 1
    refusal = guards.origin.check(host, origin)
    if refusal is not None:
        return counts.refuse("origin", refusal)
    if guards.cors is not None:
        answer = _check_cors(request, guards, counts, origin)
        if answer is not None:
            return answer
    if guards.authenticator is None:
        request.principal = NOBODY
    else:
        refusal = _identify(request, policy, host)
        if refusal is not None:
            return refusal
    if b"content-encoding" in request.headers and request.headers[b"content-encoding"] != b"identity":
        return Refusal(415, "requests must not be compressed", headers=(("Accept-Encoding", "identity"),))
    if request.method == b"POST" and b"content-type" in request.headers:
        return None if _is_json(request.headers[b"content-type"]) else _NOT_JSON
    return None


@lru_cache(maxsize=64)
def _is_json(content_type: bytes) -> bool:
    """Whether a server reads the body as it was judged: many decode it by the charset that is named here, and in UTF-7
    or Shift_JIS the same bytes are another call.
    """
    return _JSON.fullmatch(content_type) is not None


def _check_cors(request: Request, guards: Guards, counts: Counts, origin: str | None) -> Answer | None:
    assert guards.cors is not None
    counts.cors += 1
    if request.method == b"OPTIONS":
        asked = request.text(b"access-control-request-method"), request.text(b"access-control-request-headers")
        preflight = guards.cors.preflight(origin, *asked)
        if preflight is not None:
            return preflight
    request.answer_lines = header_lines(guards.cors.headers(origin))
    return None


def _identify(request: Request, policy: Policy, host: str) -> Refusal | None:
    assert policy.guards is not None
    assert policy.guards.authenticator is not None
    policy.counts.authentication += 1
    if request.query and b"access_token=" in request.query:
        # the query goes on to the server, and into the logs of whatever stands in between
        return policy.counts.refuse("authentication", Refusal(400, "a token belongs into the Authorization header"))
    who = policy.guards.authenticator.identify(request.headers.get(b"authorization"), host=host, peer=request.peer)
    if who.__class__ is Refusal:
        return policy.counts.refuse("authentication", who)
    request.principal = who  # type: ignore[assignment]
    return None


async def settle(request: Request, policy: Policy) -> Refusal | None:
    """Finds out who sent a request when that needs others to say: the issuer's keys, the API server."""
    assert policy.guards is not None
    assert policy.guards.authenticator is not None
    who = await policy.guards.authenticator.settle(
        request.headers.get(b"authorization", b""), host=request.text(b"host") or "", peer=request.peer
    )
    if isinstance(who, Refusal):
        return policy.counts.refuse("authentication", who)
    request.principal = who
    return None


# the message


def check_message(request: Request, policy: Policy) -> Refusal | None:
    """What can be decided once the body is there and the sender is known; it may change what is passed on."""
    guards, counts, principal = policy.guards, policy.counts, request.principal
    assert guards is not None
    assert principal is not None
    envelope = None
    name = None
    if request.method == b"POST":
        counts.envelope += 1
        try:
            envelope = request.envelope = read(request.body)
        except Unreadable as error:
            return counts.refuse("envelope", Refusal(400, error.message, error.code))
        method = envelope.method
        request.request_id = bytes(envelope.id)
        request.label = LABELS.get(method, "other") if method else "response"
        param = PARAMS.get(method)
        if param is not None:
            name = envelope.name(param)
            request.name = name or ""
        refusal = check_id(envelope) if policy.legacy else check_agreement(request, envelope, name)
        if refusal is not None:
            counts.refuse("envelope", refusal)
        elif policy.legacy:
            refusal = _join(request, policy)
    else:
        method = ""
        refusal = _check_bodyless(request, policy)
    if refusal is None and guards.limiter is not None:
        counts.limit += 1
        refusal = guards.limiter.check(principal.key, name if method == "tools/call" else None)
        if refusal is not None:
            counts.refuse("limit", refusal)
    if refusal is None and b"mcp-session-id" in request.headers and not policy.legacy:
        refusal = _open_session(request, policy, method)
    if refusal is None and envelope is not None and method:
        refusal = _check_rights(request, policy, envelope, name)
    return refusal or _set_out(request, policy)


def _check_bodyless(request: Request, policy: Policy) -> Refusal | None:
    request.label = request.method.decode()
    if request.body:
        return Refusal(400, f"a {request.label} request has no body")
    if policy.legacy:
        request.legacy = True
        request.endless = request.method == b"GET"
        return None if request.method in (b"GET", b"OPTIONS") else legacy.NOT_ALLOWED
    if request.method in (b"GET", b"DELETE") and request.text(b"mcp-protocol-version") in MODERN_VERSIONS:
        return Refusal(405, "this revision of MCP has only POST", headers=(("Allow", "POST"),))
    if request.method == b"GET":
        request.endless = True
        # a stream that is resumed may bring the answer to an earlier list
        request.rewrite = policy.rewrites
    return None


def _join(request: Request, policy: Policy) -> Refusal | None:
    """Finds the stream that a message of the old transport belongs to, by what the client was told to post it to."""
    assert policy.guards is not None
    assert request.principal is not None
    request.legacy = True
    policy.counts.sessions += 1
    sealed = legacy.session_of(request.query)
    if sealed is None:
        return policy.counts.refuse("sessions", legacy.NO_SESSION)
    session = policy.guards.sealer.open(sealed, request.principal)
    if isinstance(session, Session) and not session.upstream.startswith("/"):
        session = seal.NO_SUCH_SESSION  # one of the newer transport, from before the route changed
    if isinstance(session, Refusal):
        return policy.counts.refuse("sessions", session)
    request.pin = session.pod, session.uid
    request.target = session.upstream.encode("latin-1")
    request.sealed = sealed.encode()
    for name in _NEWER:
        if name in request.headers:
            request.drop_lines(name)
    return None


def _open_session(request: Request, policy: Policy, method: str) -> Refusal | None:
    """What the client calls its session says which server has it, and under what name."""
    if method == "initialize" or era_of(request.text(b"mcp-protocol-version")) is Era.MODERN:
        return None  # there cannot be one, so what the client sends is not looked at and goes no further
    assert policy.guards is not None
    assert request.principal is not None
    policy.counts.sessions += 1
    session = policy.guards.sealer.open(request.text(b"mcp-session-id") or "", request.principal)
    if isinstance(session, Refusal):
        return policy.counts.refuse("sessions", session)
    request.pin = session.pod, session.uid
    request.upstream_session = session.upstream.encode("latin-1")
    request.lines.append(b"Mcp-Session-Id: %b\r\n" % request.upstream_session)
    return None


def _check_rights(request: Request, policy: Policy, envelope: Envelope, name: str | None) -> Refusal | None:
    assert policy.guards is not None
    assert request.principal is not None
    method, authorizer = envelope.method, policy.guards.authorizer
    if authorizer is not None:
        policy.counts.authorization += 1
        if method in SESSION_ONLY and request.text(b"mcp-protocol-version") in MODERN_VERSIONS:
            refusal: Refusal | None = _ABOLISHED  # nobody may do what is not there, whatever its parameters
        else:
            refusal = authorizer.check(request.principal, method, envelope.params, name)
        if refusal is not None:
            policy.counts.refuse("authorization", refusal)
            return (
                refuse(request, envelope, refusal.code, refusal.message, detail=refusal.detail)
                if refusal.code < 0
                else refusal
            )
    if method == "tools/call":
        if policy.view is not None:
            return _check_call(request, policy, envelope, name)
    elif method in LISTS:
        request.rewrite = authorizer is not None or (policy.view is not None and method == "tools/list")
    elif method == "initialize":
        request.opens_session = True
    elif method == "subscriptions/listen":
        request.endless = not policy.legacy
    elif policy.view is not None and method not in RULES and _NO_LETTERS.sub("", method.casefold()) in _VIEWED:
        # nothing here knows it, and some server may take it for what a filter is about
        return refuse(request, envelope, ErrorCode.METHOD_NOT_FOUND, f"Method not found: {method}")
    return None


def _check_call(request: Request, policy: Policy, envelope: Envelope, name: str | None) -> Refusal | None:
    assert policy.view is not None
    policy.counts.tools += 1
    if name is None:
        refusal = refuse(request, envelope, ErrorCode.INVALID_PARAMS, "tools/call needs params.name, a string")
        return policy.counts.refuse("tools", refusal)
    backend = policy.view.backend(name)
    if backend is None:
        refusal = refuse(request, envelope, ErrorCode.INVALID_PARAMS, unknown_tool_message(name))
        return policy.counts.refuse("tools", refusal)
    if backend != name:
        request.body = envelope.rename(backend)
        if b"mcp-name" in request.headers:
            request.drop_lines(b"mcp-name")
            request.lines.append(b"Mcp-Name: %b\r\n" % encode_header_value(backend).encode())
    return None


# on the way out


def _set_out(request: Request, policy: Policy) -> Refusal | None:
    """The headers for the server: what the client may tell it, what only the gateway may, and the trace."""
    guards, headers, lines = policy.guards, request.headers, request.lines
    assert guards is not None
    outbound = guards.outbound
    policy.counts.headers += 1
    if request.others is not None:
        lines += [line for name, line in request.others if outbound.passes(name)]
    if b"origin" in headers and (b"origin" in outbound.forward or may_see_origin(request.text(b"origin") or "")):
        lines.append(b"Origin: %b\r\n" % headers[b"origin"])
    if b"accept-encoding" in outbound.forward and b"accept-encoding" in headers and not request.rewrite:
        lines.append(b"Accept-Encoding: %b\r\n" % headers[b"accept-encoding"])
    if request.method == b"OPTIONS":
        lines += [b"%b: %b\r\n" % (name, headers[name]) for name in _PREFLIGHT if name in headers]
    if outbound.set:
        for name in outbound.set:
            request.drop_lines(name)
        added = outbound.added()
        if isinstance(added, Refusal):
            return policy.counts.refuse("headers", added)
        lines = request.lines
        lines += added
    if guards.audit is not None or b"traceparent" in headers:
        if b"traceparent" in headers and b"traceparent" not in request.repeated:
            trace = guards.tracer.begin(request.text(b"traceparent"), request.text(b"tracestate"))
        else:
            trace = guards.tracer.begin(None)
        request.trace = trace
        policy.counts.trace += 1
        lines.append(trace.lines)
    return None


# the answer


def announced(request: Request, policy: Policy, place: Place, target: str) -> tuple[bytes, bytes]:
    """What a client of the old transport is told to post its messages to, and the sealed session in it.

    Raises seal.TooLong.
    """
    assert policy.guards is not None
    assert request.principal is not None
    pod, uid = place.pin
    sealed = policy.guards.sealer.seal(Session(target, pod, uid), request.principal).encode()
    return b"%b?%b=%b" % (request.path, legacy.PARAMETER, sealed), sealed


def sealed_session(request: Request, policy: Policy, place: Place, session: bytes) -> bytes:
    """The header that tells the client of its session; nothing where the server invents one that nobody asked for.

    Raises seal.TooLong.
    """
    assert policy.guards is not None
    assert request.principal is not None
    session = session.strip()
    if request.opens_session:
        pod, uid = place.pin
        sealed = policy.guards.sealer.seal(Session(session.decode("latin-1"), pod, uid), request.principal)
        return b"Mcp-Session-Id: %b\r\n" % sealed.encode()
    if session == request.upstream_session:
        return b"Mcp-Session-Id: %b\r\n" % request.headers[b"mcp-session-id"].strip()
    return b""


def record(request: Request, status: int, seconds: float) -> None:
    """A request has ended: counts it and writes it down."""
    route = request.route
    if route is None:
        return
    counts = route.counts
    counts.add(request.label, status, seconds)
    envelope = request.envelope
    if request.label == "tools/call":
        counts.add_tool(request.name if request.name in route.tool_names else "other", status)
    guards = route.policy.guards
    if guards is None or guards.audit is None:
        return
    counts.audit += 1
    principal = request.principal
    arguments = None
    if guards.audit.wants_arguments and envelope is not None and envelope.params is not None:
        arguments = envelope.params.get("arguments")
    session = request.sealed or request.headers.get(b"mcp-session-id")
    guards.audit.append(
        Entry(
            time(),
            route.name,
            (envelope.method or "response" if envelope is not None else request.label)[:MAX_TEXT],
            "" if principal is None else principal.subject,
            status,
            seconds * 1000,
            request.name[:MAX_TEXT],
            "" if principal is None else principal.issuer,
            request.code,
            "" if request.trace is None else request.trace.trace_id,
            request.peer,
            "" if not session else blake2b(session, digest_size=8).hexdigest(),
            request.detail,
            UNSET if arguments is None else kept(arguments),
        )
    )


def judge_again(request: Request) -> bool:
    """Whether an open stream may go on under settings that are newer than it. What others would have to say is no."""
    before, route = request.policy, request.route
    assert before is not None
    assert route is not None
    policy = route.policy
    if policy is before:
        return True
    guards, principal = policy.guards, request.principal
    if guards is None or before.guards is None or principal is None or policy.legacy is not before.legacy:
        return False
    if policy.rewrites and not before.rewrites and not policy.legacy:
        return False
    if guards.authenticator is not before.guards.authenticator:
        who = NOBODY
        if guards.authenticator is not None:
            said = guards.authenticator.identify(request.headers.get(b"authorization"), peer=request.peer)
            if said is None or isinstance(said, Refusal):
                return False
            who = said
        if who.key != principal.key:
            return False
        principal = who
    envelope = request.envelope
    if guards.authorizer is not None and envelope is not None:
        refusal = guards.authorizer.check(principal, envelope.method, envelope.params)
        if refusal is not None:
            return False
    request.policy, request.principal = policy, principal
    return True

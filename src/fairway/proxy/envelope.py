"""The JSON-RPC envelope of a request: read once, and read so that no other parser can read it differently.

Two members with the same name are the classic way to show one call to a gateway and another to the server behind it,
as parsers differ in which one counts, and some (Go's) do not even tell upper from lower case. So an envelope in which
any two members of the message or of its params could be taken for one another is refused.
"""

import json
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

import msgspec

from fairway.mcp.protocol import ErrorCode


class Unreadable(Exception):
    """The body is no JSON-RPC message that may pass."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class Envelope(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """A message, with every value that nobody needs to understand left as the bytes that it came in.

    `method` is empty for a response; `id` is empty for a notification.
    """

    jsonrpc: msgspec.Raw = msgspec.Raw(b"")
    id: msgspec.Raw = msgspec.Raw(b"")
    method: str = ""
    params: dict[str, msgspec.Raw] | None = None
    result: msgspec.Raw = msgspec.Raw(b"")
    error: msgspec.Raw = msgspec.Raw(b"")

    @property
    def is_request(self) -> bool:
        return self.method != "" and len(self.id) > 0

    def name(self, key: str = "name") -> str | None:
        """A parameter that is a string; None if it is absent or something else."""
        raw = None if self.params is None else self.params.get(key)
        return None if raw is None else text_of(raw)

    def rename(self, name: str) -> bytes:
        """Changes `params.name`. Returns the new message; all other values stay as they are, byte for byte."""
        assert self.params is not None
        self.params["name"] = msgspec.Raw(msgspec.json.encode(name))
        message: dict[str, Any] = {"jsonrpc": self.jsonrpc} if len(self.jsonrpc) else {}
        if len(self.id):
            message["id"] = self.id
        message["method"] = self.method
        message["params"] = self.params
        return msgspec.json.encode(message)


Members = dict[str, msgspec.Raw]

_LARGE: Final = 64 << 10
"""Bytes up to which every value may be looked at."""
_decoder: Final = msgspec.json.Decoder(Envelope)
_string: Final = msgspec.json.Decoder(str)
_members: Final = msgspec.json.Decoder(Members)
_ID: Final = re.compile(rb'"|-?[0-9]+\Z')
"""A string, or a number that every parser gives back as it was written."""
_MAX_ID: Final = 1024
"""Bytes; ids are kept as long as their answers are to come."""


def text_of(raw: msgspec.Raw) -> str | None:
    """None for what is no string."""
    try:
        return _string.decode(raw)
    except msgspec.MsgspecError:
        return None


def read(body: bytes) -> Envelope:
    """The envelope of a POST body. Raises Unreadable."""
    try:
        if not body.isascii():
            str(body, "utf-8")  # what stays raw is not looked into, and some parsers mend what is no UTF-8
        envelope = _decoder.decode(body)
    except msgspec.ValidationError:
        envelope = _read_carefully(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        raise Unreadable(ErrorCode.PARSE_ERROR, "the body is not valid JSON") from None
    else:
        if not _covers(envelope, body):
            envelope = _read_carefully(body)
    wrong = _wrong_shape(envelope)
    if wrong:
        raise Unreadable(ErrorCode.INVALID_REQUEST, f"the body is no JSON-RPC message: {wrong}")
    return envelope


def _wrong_shape(envelope: Envelope) -> str:
    """What a message must not look like, though it is JSON."""
    if envelope.jsonrpc != _VERSION:
        return 'jsonrpc must be "2.0"'
    has_id = len(envelope.id) > 0
    if len(envelope.id) > _MAX_ID:
        return f"id is longer than {_MAX_ID} bytes"
    if envelope.method:
        if len(envelope.result) or len(envelope.error):
            return "it is request and response at once"
        if has_id and _ID.match(envelope.id) is None:
            return "id must be a string or an integer"
        return ""
    if not len(envelope.result):
        if not len(envelope.error):
            return "it has no method"
        if not has_id or envelope.id == _NULL:
            return ""  # an error whose request could not be told
    elif len(envelope.error):
        return "it is result and error at once"
    return "" if has_id and _ID.match(envelope.id) is not None else "id must be a string or an integer"


_VERSION: Final = msgspec.Raw(b'"2.0"')
_NULL: Final = msgspec.Raw(b"null")


def _covers(envelope: Envelope, body: bytes) -> bool:
    """Whether the members that were read account for every byte of a body written without spaces.

    Then none was hidden behind another of the same name. It costs a fifth of looking for duplicates, and nearly all
    clients write that way.
    """
    size = 1
    if length := len(envelope.jsonrpc):
        size += length + 11
    if length := len(envelope.id):
        size += length + 6
    if envelope.method:
        size += len(envelope.method) + 12
    if length := len(envelope.result):
        size += length + 10
    if length := len(envelope.error):
        size += length + 9
    params = envelope.params
    if params is not None:
        size += 11
        for key, value in params.items():
            size += len(key) + len(value) + 4
        if not params:
            size += 1
        elif not params.keys() <= _PARAMS and _unclear(params):
            return False
    return size == len(body)


_PARAMS: Final = frozenset(
    {"_meta", "arguments", "capabilities", "clientInfo", "cursor", "level", "name", "notifications", "protocolVersion",
     "reason", "ref", "requestId", "taskId", "uri"}
)  # fmt: skip
"""What decisions rest on. In another case some servers would find it there, and nobody here."""
_PARAMS_FOLDED: Final = {name.casefold(): name for name in _PARAMS}
_MEMBERS_FOLDED: Final = {name: name for name in ("jsonrpc", "id", "method", "params", "result", "error")}


def _unclear(params: Collection[str]) -> bool:
    folded = {name.casefold() for name in params}
    return len(folded) != len(params) or any(_PARAMS_FOLDED[f] not in params for f in folded & _PARAMS_FOLDED.keys())


class _Pairs(list[tuple[str, Any]]):
    """A JSON object as it is written, with duplicates."""


def _number(_: str) -> float:
    """Numbers do not matter here, and some are too long to be turned into one."""
    return 0.0


def _no_number(text: str) -> float:
    raise ValueError(f"{text} is not JSON")


_careful: Final = json.JSONDecoder(
    object_pairs_hook=_Pairs, parse_int=_number, parse_float=_number, parse_constant=_no_number
)


def _outline(body: bytes) -> Any:
    """As much of a large message as has to be looked at: to look at every value would hold up everybody else."""
    tight = msgspec.json.format(body, indent=-1)
    if tight[:1] != b"{":
        return [] if tight[:1] == b"[" else None
    members = _whole(tight)
    message: dict[str, Any] = dict(members)
    if "method" in members:
        message["method"] = text_of(members["method"])
    if "params" in members:
        params = bytes(members["params"])
        message["params"] = _Pairs(_whole(params).items()) if params[:1] == b"{" else None if params == b"null" else ""
    return _Pairs(message.items())


def _whole(tight: bytes) -> Members:
    """The members of an object that is written without spaces, if they account for every byte of it."""
    members = _members.decode(tight)
    size = sum(len(key.encode()) + 4 + len(value) for key, value in members.items()) + 1 + (not members)
    if size != len(tight):
        raise Unreadable(
            ErrorCode.INVALID_REQUEST, "a large message has members of one name, or names that are escaped"
        )
    return members


def _read_carefully(body: bytes) -> Envelope:
    try:
        message = _outline(body) if len(body) > _LARGE else _careful.decode(body.decode())
    except (ValueError, msgspec.MsgspecError, RecursionError):
        raise Unreadable(ErrorCode.PARSE_ERROR, "the body is not valid JSON") from None
    if isinstance(message, list) and not isinstance(message, _Pairs):
        raise Unreadable(ErrorCode.INVALID_REQUEST, "batches are not part of MCP: send one message at a time")
    if not isinstance(message, _Pairs):
        raise Unreadable(ErrorCode.INVALID_REQUEST, "the body is no JSON-RPC message: it is not an object")
    _check_names(message, _MEMBERS_FOLDED, "")
    params = dict(message).get("params")
    if isinstance(params, _Pairs):
        _check_names(params, _PARAMS_FOLDED, "params.")
    elif params is not None:
        raise Unreadable(ErrorCode.INVALID_REQUEST, "params must be an object")
    method = dict(message).get("method", "-")
    if not isinstance(method, str) or not method:
        raise Unreadable(ErrorCode.INVALID_REQUEST, "method must be a string, and not an empty one")
    try:
        members = _members.decode(body)
        raw_params = members.get("params")
        return Envelope(
            jsonrpc=members.get("jsonrpc", msgspec.Raw(b"")),
            id=members.get("id", msgspec.Raw(b"")),
            method=_string.decode(members["method"]) if "method" in members else "",
            params=None if raw_params is None or bytes(raw_params) == b"null" else _members.decode(raw_params),
            result=members.get("result", msgspec.Raw(b"")),
            error=members.get("error", msgspec.Raw(b"")),
        )
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        raise Unreadable(ErrorCode.PARSE_ERROR, "the body is not valid JSON") from None


def _check_names(pairs: Iterable[tuple[str, Any]], known: Mapping[str, str], where: str) -> None:
    """None of them may be taken for another, nor for one that is known and not there."""
    seen: set[str] = set()
    for key, _ in pairs:
        folded = key.casefold()
        if folded in seen:
            raise Unreadable(ErrorCode.INVALID_REQUEST, f"{where}{key} is there twice")
        if known.get(folded, key) != key:
            raise Unreadable(ErrorCode.INVALID_REQUEST, f"{where}{key} must be written {known[folded]}")
        seen.add(folded)

"""The JSON-RPC envelope of a request: read once, and read so that no other parser can read it differently.

Two members with the same name are the classic way to show one call to a gateway and another to the server behind it,
as parsers differ in which one counts, and some (Go's) do not even tell upper from lower case. So an envelope in which
any two members of the message or of its params could be taken for one another is refused.
"""

import json
import re
from collections.abc import Iterable
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
        if raw is None:
            return None
        try:
            return _string.decode(raw)
        except msgspec.MsgspecError:
            return None

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


_decoder: Final = msgspec.json.Decoder(Envelope)
_string: Final = msgspec.json.Decoder(str)
_members: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ID: Final = re.compile(rb'"|-?[0-9]+\Z')
"""A string, or a number that every parser gives back as it was written."""


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
        elif len(params) > 1 and not _told_apart(params):
            return False
    return size == len(body)


def _told_apart(names: Iterable[str]) -> bool:
    """Whether none of these different names could be taken for another one by who reads upper case as lower."""
    joined = "".join(names)
    if joined.isascii() and joined == joined.lower():
        return True
    folded = [name.casefold() for name in names]
    return len(set(folded)) == len(folded)


_MEMBERS: Final = frozenset({"jsonrpc", "id", "method", "params", "result", "error"})


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


def _read_carefully(body: bytes) -> Envelope:
    try:
        message = _careful.decode(body.decode())
    except (ValueError, RecursionError):
        raise Unreadable(ErrorCode.PARSE_ERROR, "the body is not valid JSON") from None
    if isinstance(message, list) and not isinstance(message, _Pairs):
        raise Unreadable(ErrorCode.INVALID_REQUEST, "batches are not part of MCP: send one message at a time")
    if not isinstance(message, _Pairs):
        raise Unreadable(ErrorCode.INVALID_REQUEST, "the body is no JSON-RPC message: it is not an object")
    _refuse_duplicates(message, "")
    for key, _ in message:
        if key.casefold() in _MEMBERS and key not in _MEMBERS:
            raise Unreadable(ErrorCode.INVALID_REQUEST, f"{key} must be written {key.casefold()}")
    params = dict(message).get("params")
    if isinstance(params, _Pairs):
        _refuse_duplicates(params, "params.")
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


def _refuse_duplicates(pairs: Iterable[tuple[str, Any]], where: str) -> None:
    seen: set[str] = set()
    for key, _ in pairs:
        folded = key.casefold()
        if folded in seen:
            raise Unreadable(ErrorCode.INVALID_REQUEST, f"{where}{key} is there twice")
        seen.add(folded)

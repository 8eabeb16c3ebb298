"""JSON-RPC messages as a bridge reads and writes them: values that it need not understand stay the bytes they were."""

from typing import Final

import msgspec

from fairway.mcp.protocol import ErrorCode, Meta, Method

Members = dict[str, msgspec.Raw]


class FromServer(msgspec.Struct, gc=False):
    """A line of the server. `method` is empty for an answer; `id` is None for a notification."""

    id: int | str | None = None
    method: str = ""
    params: msgspec.Raw = msgspec.Raw(b"")
    result: msgspec.Raw = msgspec.Raw(b"")
    error: msgspec.Raw = msgspec.Raw(b"")


class ErrorObject(msgspec.Struct):
    code: int = 0
    message: str = ""
    data: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


read_line: Final = msgspec.json.Decoder(FromServer).decode
read_members: Final = msgspec.json.Decoder(Members).decode
read_error: Final = msgspec.json.Decoder(ErrorObject).decode
encode: Final = msgspec.json.encode

_METHODS: Final = {str(method): encode(str(method)) for method in Method}


_LINE_ENDS: Final = tuple((c.encode(), f"\\u{ord(c):04x}".encode()) for c in "\x85\u2028\u2029")
"""What JSON leaves as it is inside of strings, and many readers of lines take for the end of one: Node's do."""


def one_line(message: bytes) -> bytes:
    """A message that nobody who reads lines takes for more than one, whoever wrote its parts."""
    if b"\n" in message or b"\r" in message:
        message = msgspec.json.format(message, indent=-1)
    if not message.isascii():
        for character, escaped in _LINE_ENDS:
            message = message.replace(character, escaped)
    return message


def request(number: int, method: str, params: bytes | msgspec.Raw) -> bytes:
    name = _METHODS.get(method) or encode(method)
    if not len(params):
        return b'{"jsonrpc":"2.0","id":%d,"method":%b}' % (number, name)
    return b'{"jsonrpc":"2.0","id":%d,"method":%b,"params":%b}' % (number, name, params)


def notification(method: str, params: bytes | msgspec.Raw = b"") -> bytes:
    name = _METHODS.get(method) or encode(method)
    if not len(params):
        return b'{"jsonrpc":"2.0","method":%b}' % name
    return b'{"jsonrpc":"2.0","method":%b,"params":%b}' % (name, params)


def result(request_id: bytes | msgspec.Raw, value: bytes | msgspec.Raw) -> bytes:
    return b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (request_id, value)


def error(request_id: bytes | msgspec.Raw, value: bytes | msgspec.Raw) -> bytes:
    return b'{"jsonrpc":"2.0","id":%b,"error":%b}' % (request_id, value)


def refusal(request_id: bytes | msgspec.Raw, code: int, message: str) -> bytes:
    return error(request_id, encode({"code": int(code), "message": message}))


# the same message to the other era

_ENVELOPE: Final = (Meta.PROTOCOL_VERSION.value, Meta.CLIENT_CAPABILITIES.value, Meta.CLIENT_INFO.value)
_CACHED: Final = frozenset(
    {
        Method.TOOLS_LIST.value,
        Method.PROMPTS_LIST.value,
        Method.RESOURCES_LIST.value,
        Method.RESOURCES_TEMPLATES_LIST.value,
        Method.RESOURCES_READ.value,
    }
)
"""Methods whose results say how long they may be kept: here not at all, as the server did not say."""
_COMPLETE: Final = b'{"resultType":"complete"'
_COMPLETE_UNCACHED: Final = b'{"resultType":"complete","ttlMs":0,"cacheScope":"private"'
_OWN_KEYS: Final = (b'"resultType"', b'"ttlMs"', b'"cacheScope"')
_RESOURCE_NOT_FOUND: Final = -32002
"""What servers of the session era answer to resources/read of something that is not there."""


def session_meta(meta: Members) -> Members:
    """`_meta` for a server of the session era, some of which refuse what marks a request as modern."""
    return {key: value for key, value in meta.items() if key not in _ENVELOPE and key != Meta.LOG_LEVEL}


def modern_result(method: str, value: msgspec.Raw) -> bytes:
    """The result of a server of the session era as one of the modern era."""
    raw = bytes(value)
    start = _COMPLETE_UNCACHED if method in _CACHED else _COMPLETE
    if raw[:1] != b"{":
        return raw
    if any(key in raw for key in _OWN_KEYS):
        members = read_members(raw)
        return encode({**read_members(start + b"}"), **members})
    rest = raw[1:].lstrip()
    return start + rest if rest[:1] == b"}" else start + b"," + rest


def modern_error(method: str, value: msgspec.Raw) -> tuple[int, bytes]:
    """Code and object of an error of a server of the session era, in the words of the modern era."""
    found = read_error(value)
    if found.code == _RESOURCE_NOT_FOUND and method == Method.RESOURCES_READ:
        found.code = ErrorCode.INVALID_PARAMS.value
        return found.code, encode(found)
    return found.code, bytes(value)

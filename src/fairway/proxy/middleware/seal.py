"""Sealed ids: what a replica must know to serve a session, encrypted into the session's own id.

Any replica with the key opens it, so there is no session store and no affinity. Whoever makes up, changes, steals or
keeps an id too long is told that there is no such session, and all of them are told so at the same cost.

AES-256-GCM-SIV, since replicas share keys but no counters: a nonce that is used twice by accident tells no more than
whether two messages are equal. Server and purpose are authenticated too: an id is good for one server only.
"""

import base64
import binascii
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import blake2b, sha256
from typing import Final

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCMSIV

from fairway.proxy.answers import Refusal
from fairway.proxy.middleware.principal import Principal

MAX_SEALED: Final = 4096
"""Characters of the longest id that is looked at; servers and proxies commonly allow 8 KiB for all headers together."""
MAX_UPSTREAM: Final = 2048
_VERSION: Final = b"\x01"
_KEY_ID: Final = 4
_NONCE: Final = 12
_HEAD: Final = len(_VERSION) + _KEY_ID + _NONCE
_SMALLEST: Final = _HEAD + 16

NO_SUCH_SESSION: Final = Refusal(404, "there is no such session: initialize a new one")


class InvalidKey(ValueError):
    """A key file that cannot be used; the message never repeats its content."""


class TooLong(ValueError):
    """The server's own id is longer than what fits into a header with all else."""


@dataclass(frozen=True, slots=True)
class Session:
    """What a sealed id stands for."""

    upstream: str
    """The server's own id."""
    pod: str = ""
    uid: str = ""


class _Content(msgspec.Struct, array_like=True, frozen=True):
    upstream: str
    pod: str
    uid: str
    owner: bytes
    expires_at: int


_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(_Content)


@dataclass(frozen=True, slots=True)
class Key:
    """One key; `id` tells which of several it is and nothing about it."""

    id: bytes
    cipher: AESGCMSIV


def read_key(content: bytes, source: str = "the key") -> Key:
    """32 bytes, raw, in hex or in base64 of either alphabet. Raises InvalidKey."""
    secret = content
    if len(content) != 32:
        text = content.strip()
        try:
            secret = bytes.fromhex(text.decode("ascii")) if len(text) == 64 else base64.b64decode(_standard(text))
        except (ValueError, binascii.Error):
            secret = b""
    if len(secret) != 32:
        raise InvalidKey(f"{source} is not 32 bytes, raw, in hex or in base64")
    return Key(sha256(b"fairway key id" + secret).digest()[:_KEY_ID], AESGCMSIV(secret))


def _standard(text: bytes) -> bytes:
    return text.translate(bytes.maketrans(b"-_", b"+/")) + b"=" * (-len(text) % 4)


def ephemeral_key() -> Key:
    """For a proxy with a single replica and no configured key: its sessions end with it."""
    return read_key(os.urandom(32))


class Sealer:
    """Seals with the first key and opens with all: a new key first goes to the end everywhere, and then to the front.

    `server` is the route's name. `purpose` keeps ids of sessions and of tasks apart.
    """

    def __init__(
        self,
        keys: Sequence[Key],
        *,
        server: str,
        lifetime: float,
        clock: Callable[[], float],
        purpose: str = "session",
    ) -> None:
        if not keys:
            raise InvalidKey("there must be at least one key")
        self.refused = 0
        self._first = keys[0]
        self._by_id = {key.id: key for key in keys}
        self._bound_to = f"{purpose}\0{server}".encode()
        self._lifetime = lifetime
        self._clock = clock

    def seal(self, session: Session, principal: Principal) -> str:
        """A text for a header or a URL. Raises TooLong."""
        if len(session.upstream) > MAX_UPSTREAM:
            raise TooLong(f"the server's session id is longer than {MAX_UPSTREAM} characters")
        content = _Content(
            session.upstream, session.pod, session.uid, _owner(principal), int(self._clock() + self._lifetime)
        )
        head = _VERSION + self._first.id + os.urandom(_NONCE)
        sealed = self._first.cipher.encrypt(head[-_NONCE:], _encoder.encode(content), head[:-_NONCE] + self._bound_to)
        text = base64.urlsafe_b64encode(head + sealed).rstrip(b"=").decode("ascii")
        if len(text) > MAX_SEALED:
            raise TooLong(f"the sealed id is longer than {MAX_SEALED} characters")
        return text

    def open(self, sealed: str, principal: Principal) -> Session | Refusal:
        """The session, if the id is ours, still good, and this principal's."""
        content = self._content(sealed)
        if content is None or content.expires_at <= self._clock() or content.owner != _owner(principal):
            self.refused += 1
            return NO_SUCH_SESSION
        return Session(content.upstream, content.pod, content.uid)

    def _content(self, sealed: str) -> _Content | None:
        if len(sealed) > MAX_SEALED or not sealed.isascii():
            return None
        try:
            raw = base64.b64decode(_standard(sealed.encode("ascii")), validate=True)
        except binascii.Error:
            return None
        if len(raw) < _SMALLEST or raw[:1] != _VERSION or base64.urlsafe_b64encode(raw).rstrip(b"=") != sealed.encode():
            return None
        # an unknown key costs as much as a known one: the answer's timing must not tell which keys exist
        key = self._by_id.get(raw[1 : 1 + _KEY_ID], self._first)
        try:
            opened = key.cipher.decrypt(raw[1 + _KEY_ID : _HEAD], raw[_HEAD:], raw[: 1 + _KEY_ID] + self._bound_to)
        except InvalidTag:
            return None
        return _decoder.decode(opened)


def _owner(principal: Principal) -> bytes:
    return blake2b(principal.key.encode("utf-8", "surrogatepass"), digest_size=16).digest()

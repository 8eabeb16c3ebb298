"""JSON Web Tokens: taken apart strictly, and checked against one key. Pure.

Stricter than the RFCs where leniency has been an attack: base64url has one spelling, members of an object have one
value, the key decides which algorithms it may be used with, and headers that bring or name their own keys are refused.
"""

import base64
import binascii
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, hmac
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

from fairway.mcp import exact

PublicKey = rsa.RSAPublicKey | ec.EllipticCurvePublicKey | ed25519.Ed25519PublicKey | ed448.Ed448PublicKey | bytes
Verify = Callable[[bytes, bytes], bool]
"""signature, signed bytes -> whether it is right."""

_TOKEN: Final = re.compile(rb"([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)")
_TYPES: Final = frozenset({"jwt", "at+jwt", "application/jwt", "application/at+jwt"})
_OWN_KEYS: Final = ("jku", "jwk", "x5u")


class Malformed(ValueError):
    """No JWT that could have been meant for here; the message is for the client and repeats nothing of the token."""


@dataclass(frozen=True, slots=True)
class Token:
    """A JWT whose signature nobody has looked at yet."""

    algorithm: str
    kid: str | None
    claims: Mapping[str, Any]
    signed: bytes
    signature: bytes


def take_apart(token: bytes) -> Token:
    """Raises Malformed."""
    match = _TOKEN.fullmatch(token)
    if match is None:
        raise Malformed("the token is not a signed JWT")
    header = _object(match[1])
    algorithm, kid = header.get("alg"), header.get("kid")
    if not isinstance(algorithm, str):
        raise Malformed("the token has no algorithm")
    if kid is not None and not (isinstance(kid, str) and 0 < len(kid) <= 256):
        raise Malformed("the token's key id is not a short text")
    kind = header.get("typ", "JWT")
    if not isinstance(kind, str) or kind.lower() not in _TYPES:
        raise Malformed("the token is of another type than an access token")
    if "crit" in header:
        raise Malformed("the token asks for extensions that are not understood here")
    if "zip" in header or "enc" in header:
        raise Malformed("the token is encrypted or compressed")
    if any(name in header for name in _OWN_KEYS):
        raise Malformed("the token brings a key of its own")
    return Token(algorithm, kid, _object(match[2]), token[: match.end(2)], _bytes(match[3]))


def _bytes(part: bytes) -> bytes:
    try:
        value = base64.urlsafe_b64decode(part + b"=" * (-len(part) % 4))
    except binascii.Error:
        raise Malformed("the token is not base64url") from None
    if base64.urlsafe_b64encode(value).rstrip(b"=") != part:
        raise Malformed("the token is not base64url in its one spelling")
    return value


def _object(part: bytes) -> dict[str, Any]:
    try:
        value = exact.read(_bytes(part))
    except exact.Ambiguous:
        raise Malformed("the token's parts are not plain JSON objects") from None
    if not isinstance(value, dict):
        raise Malformed("the token's parts are not JSON objects")
    return value


_DIGESTS: Final[Mapping[str, hashes.HashAlgorithm]] = {
    "256": hashes.SHA256(),
    "384": hashes.SHA384(),
    "512": hashes.SHA512(),
}
_CURVES: Final[Mapping[str, tuple[str, int, str]]] = {
    "secp256r1": ("ES256", 32, "256"),
    "secp384r1": ("ES384", 48, "384"),
    "secp521r1": ("ES512", 66, "512"),
}
COST: Final[Mapping[str, int]] = {"RS": 1, "PS": 1, "HS": 1, "ES": 3, "Ed": 4}
"""What a signature costs to check, in units of about 30 us; see `cost`."""


def cost(algorithm: str) -> int:
    return 20 if algorithm in ("ES384", "ES512", "Ed448") else COST.get(algorithm[:2], 1)


def verifiers(key: PublicKey) -> dict[str, Verify]:
    """By algorithm: every one that this key may be used with, and no other. Empty for a key that is too weak."""
    if isinstance(key, bytes):
        return {f"HS{n}": _hmac(key, digest) for n, digest in _DIGESTS.items()} if len(key) >= 32 else {}
    if isinstance(key, rsa.RSAPublicKey):
        if not 2048 <= key.key_size <= 8192 or key.public_numbers().e >> 32:
            return {}  # below: forgeable; above, or with a huge exponent: a slow check that anybody can ask for
        pkcs = {f"RS{n}": _rsa(key, padding.PKCS1v15(), digest) for n, digest in _DIGESTS.items()}
        return pkcs | {f"PS{n}": _rsa(key, _pss(digest), digest) for n, digest in _DIGESTS.items()}
    if isinstance(key, ec.EllipticCurvePublicKey):
        if key.curve.name not in _CURVES:
            return {}
        name, size, digest = _CURVES[key.curve.name]
        return {name: _ecdsa(key, size, _DIGESTS[digest])}
    if isinstance(key, ed25519.Ed25519PublicKey):
        return dict.fromkeys(("EdDSA", "Ed25519"), _eddsa(key))
    return dict.fromkeys(("EdDSA", "Ed448"), _eddsa(key))


def _pss(digest: hashes.HashAlgorithm) -> padding.PSS:
    return padding.PSS(mgf=padding.MGF1(digest), salt_length=digest.digest_size)


def _rsa(key: rsa.RSAPublicKey, pad: padding.AsymmetricPadding, digest: hashes.HashAlgorithm) -> Verify:
    def verify(signature: bytes, signed: bytes) -> bool:
        try:
            key.verify(signature, signed, pad, digest)
        except InvalidSignature:
            return False
        return True

    return verify


def _ecdsa(key: ec.EllipticCurvePublicKey, size: int, digest: hashes.HashAlgorithm) -> Verify:
    algorithm = ec.ECDSA(digest)

    def verify(signature: bytes, signed: bytes) -> bool:
        if len(signature) != 2 * size:
            return False
        r, s = int.from_bytes(signature[:size]), int.from_bytes(signature[size:])
        try:
            key.verify(encode_dss_signature(r, s), signed, algorithm)
        except InvalidSignature:
            return False
        return True

    return verify


def _eddsa(key: ed25519.Ed25519PublicKey | ed448.Ed448PublicKey) -> Verify:
    def verify(signature: bytes, signed: bytes) -> bool:
        try:
            key.verify(signature, signed)
        except InvalidSignature:
            return False
        return True

    return verify


def _hmac(secret: bytes, digest: hashes.HashAlgorithm) -> Verify:
    def verify(signature: bytes, signed: bytes) -> bool:
        mac = hmac.HMAC(secret, digest)
        mac.update(signed)
        try:
            mac.verify(signature)
        except InvalidSignature:
            return False
        return True

    return verify

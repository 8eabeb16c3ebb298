"""Makes tokens, good and bad: keys of several issuers, and a table's rows turned into Authorization headers."""

import base64
import hashlib
import hmac
import json
from functools import cache
from typing import Any

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature, encode_dss_signature

ISSUER = "https://idp.example.org/realm"
OTHER_ISSUER = "https://other.example.org"
SHARED_ISSUER = "https://shared.example.org"
RESOURCE = "https://gw.example.org/mcp"
SECRET = b"a shared secret of more than thirty-two bytes"
NOW = 1_800_000_000.0

_SIZES = {"256": 32, "384": 48, "512": 66}


@cache
def private(name: str) -> Any:
    """Keys by what they are for; made once, as RSA is slow to make."""
    kind = name.partition("-")[0]
    if kind == "rsa":
        return rsa.generate_private_key(65537, 1024 if name.endswith("weak") else 2048)
    if kind == "ec":
        curves = {"256": ec.SECP256R1, "384": ec.SECP384R1, "512": ec.SECP521R1, "k1": ec.SECP256K1}
        return ec.generate_private_key(curves[name.split("-")[1]]())
    return ed25519.Ed25519PrivateKey.generate() if kind == "ed25519" else ed448.Ed448PrivateKey.generate()


def b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _int(value: int, size: int | None = None) -> str:
    return b64(value.to_bytes(size or (value.bit_length() + 7) // 8))


def jwk(name: str, kid: str | None = None, **more: Any) -> dict[str, Any]:
    """The public half."""
    public = private(name).public_key()
    match public:
        case rsa.RSAPublicKey():
            numbers = public.public_numbers()
            key = {"kty": "RSA", "n": _int(numbers.n), "e": _int(numbers.e)}
        case ec.EllipticCurvePublicKey():
            point, size = public.public_numbers(), (public.key_size + 7) // 8
            curve = {"secp256r1": "P-256", "secp384r1": "P-384", "secp521r1": "P-521", "secp256k1": "secp256k1"}
            key = {
                "kty": "EC",
                "crv": curve[public.curve.name],
                "x": _int(point.x, size),
                "y": _int(point.y, size),
            }
        case _:
            curve_name = "Ed25519" if isinstance(public, ed25519.Ed25519PublicKey) else "Ed448"
            key = {"kty": "OKP", "crv": curve_name, "x": b64(public.public_bytes_raw())}
    return key | ({} if kid is None else {"kid": kid}) | more


def pem(name: str) -> bytes:
    return (
        private(name)
        .public_key()
        .public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    )


def sign(algorithm: str, key: Any, data: bytes) -> bytes:
    family, size = algorithm[:2], algorithm[2:]
    digest = {"256": hashes.SHA256(), "384": hashes.SHA384(), "512": hashes.SHA512()}.get(size)
    match family:
        case "RS":
            return key.sign(data, padding.PKCS1v15(), digest)
        case "PS":
            pss = padding.PSS(mgf=padding.MGF1(digest), salt_length=digest.digest_size)
            return key.sign(data, pss, digest)
        case "ES":
            r, s = decode_dss_signature(key.sign(data, ec.ECDSA(digest)))
            return r.to_bytes(_SIZES[size]) + s.to_bytes(_SIZES[size])
        case "Ed":
            return key.sign(data)
        case "HS":
            return hmac.digest(key, data, getattr(hashlib, f"sha{size}"))
    raise ValueError(algorithm)


def claims(**changed: Any) -> dict[str, Any]:
    standard = {
        "iss": ISSUER,
        "sub": "alice",
        "aud": RESOURCE,
        "iat": int(NOW) - 10,
        "exp": int(NOW) + 300,
        "groups": ["engineering"],
        "scope": "mcp:tools mcp:read",
    }
    return {name: value for name, value in (standard | changed).items() if value is not None}


def token(
    payload: dict[str, Any] | None = None,
    *,
    algorithm: str = "RS256",
    key: Any = None,
    kid: str | None = "rsa",
    **header: Any,
) -> str:
    """A JWT that is good unless told otherwise."""
    head = {"alg": algorithm, "typ": "JWT"} | ({} if kid is None else {"kid": kid}) | header
    signed = f"{b64(json.dumps(head).encode())}.{b64(json.dumps(claims() if payload is None else payload).encode())}"
    return f"{signed}.{b64(sign(algorithm, private('rsa') if key is None else key, signed.encode()))}"


def bearer(text: str) -> bytes:
    return b"Bearer " + text.encode("latin-1")


# rows of the table of bad tokens


def _filled(value: Any) -> Any:
    """`$now`, `$now+60`, `$now-60`, and `$jwk <key>` in a row's values."""
    match value:
        case str() if value.startswith("$now"):
            return int(NOW) + int(value[4:] or 0)
        case str() if value.startswith("$jwk "):
            return jwk(value[5:])
        case str() if value.startswith("$repeat "):
            _, count, text = value.split(" ", 2)
            return text * int(count)
        case dict():
            return {name: _filled(member) for name, member in value.items()}
        case list():
            return [_filled(item) for item in value]
    return value


def _key(name: str) -> Any:
    """Secrets that an attacker can derive from what is public, besides the keys."""
    if name.startswith("pem "):
        return pem(name[4:])
    if name.startswith("jwk "):
        return json.dumps(jwk(name[4:])).encode()
    if name == "secret":
        return SECRET
    return b"" if name == "empty" else private(name)


def _edited(text: str, edit: str) -> str:
    head, body, signature = text.split(".")
    match edit:
        case "no signature":
            return f"{head}.{body}."
        case "no signature, no dot":
            return f"{head}.{body}"
        case "signature cut":
            return text[:-8]
        case "signature longer":
            return text + "AAAA"
        case "signature zero":
            return f"{head}.{body}.{b64(bytes(len(base64.urlsafe_b64decode(signature + '==='))))}"
        case "signature all ones":
            return f"{head}.{body}.{b64(bytes([255]) * len(base64.urlsafe_b64decode(signature + '===')))}"
        case "signature flipped":
            return f"{head}.{body}.{'B' if signature[0] == 'A' else 'A'}{signature[1:]}"
        case "signature as DER":
            raw = base64.urlsafe_b64decode(signature + "===")
            half = len(raw) // 2
            return f"{head}.{body}.{b64(encode_dss_signature(int.from_bytes(raw[:half]), int.from_bytes(raw[half:])))}"
        case "signature with a zero in the middle":
            raw = base64.urlsafe_b64decode(signature + "===")
            return f"{head}.{body}.{b64(raw[: len(raw) // 2] + bytes(1) + raw[len(raw) // 2 :])}"
        case "padded":
            return f"{head}==.{body}==.{signature}=="
        case "padded signature":
            return f"{text}=="
        case "standard alphabet":
            return f"{head}.{body}.{signature.replace('-', '+').replace('_', '/')}+/"
        case "stray bits":  # the last character of a signature of 256 bytes carries four bits that nothing uses
            return text[:-1] + chr(ord(text[-1]) + 1)
        case "white space inside":
            return f"{head}.{body} .{signature}"
        case "line end inside":
            return f"{head}.\n{body}.{signature}"
        case "tab inside":
            return f"{head}\t.{body}.{signature}"
        case "null byte":
            return f"{head}.{body}.{signature}\0"
        case "percent":
            return f"{head}%2E{body}%2E{signature}"
        case "four parts":
            return f"{text}.{signature}"
        case "five parts":
            return f"{head}.{body}.{signature}.{signature}.{signature}"
        case "leading dot":
            return f".{text}"
        case "body twice":
            return f"{head}.{body}.{body}.{signature}"
        case "empty header":
            return f".{body}.{signature}"
        case "empty body":
            return f"{head}..{signature}"
        case "parts swapped":
            return f"{body}.{head}.{signature}"
        case "body replaced":
            return f"{head}.{b64(json.dumps(claims(sub='root')).encode())}.{signature}"
        case "header replaced":
            return (
                f"{b64(json.dumps({'alg': 'RS256', 'kid': 'rsa', 'typ': 'JWT', 'x': 1}).encode())}.{body}.{signature}"
            )
        case "upper case":
            return text.upper()
        case "non-ASCII":
            return text[:-1] + "é"
        case "quoted":
            return f'"{text}"'
        case "twice with comma":
            return f"{text},{text}"
        case "twice with space":
            return f"{text} {text}"
    raise ValueError(edit)


def header_of(row: dict[str, Any]) -> bytes:
    """The Authorization header that a row describes."""
    if "authorization" in row and "{token}" not in row["authorization"]:
        return _filled(row["authorization"]).encode("latin-1")
    algorithm = row.get("signed_as", row.get("header", {}).get("alg") or "RS256")
    head = {"alg": "RS256", "typ": "JWT", "kid": "rsa"} | _filled(row.get("header", {}))
    head = {name: value for name, value in head.items() if value != "$absent"}
    payload = {name: value for name, value in (claims() | _filled(row.get("claims", {}))).items() if value != "$absent"}
    raw_head = row.get("raw_header") or json.dumps(head)
    raw_body = row.get("raw_claims") or json.dumps(payload)
    if raw_head == "$nested":
        raw_head = '{"alg":"RS256","kid":"rsa","x":' + "[" * 3000 + "]" * 3000 + "}"
    raw_body = raw_body.replace("$exp", str(int(NOW) + 300)).replace("$iat", str(int(NOW) - 10))
    if "nested" in row:
        raw_body = token()
    signed = f"{b64(raw_head.encode('utf-8', 'surrogatepass'))}.{b64(raw_body.encode('utf-8', 'surrogatepass'))}"
    key = row.get("key", "rsa")
    signature = b"" if key == "none" else sign(algorithm, _key(key), signed.encode())
    text = f"{signed}.{b64(signature)}"
    for edit in row.get("edit", []):
        text = _edited(text, edit)
    return row.get("authorization", "Bearer {token}").replace("{token}", text).encode("latin-1")

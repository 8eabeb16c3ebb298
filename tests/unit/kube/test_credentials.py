"""Credentials: renewed before they expire, after a 401, and when files change; exec plugins as real programs."""

import json
import os
import ssl
import stat
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from fairway.kube.credentials import (
    Authenticator,
    Certificate,
    Credential,
    CredentialsFailed,
    ExecPlugin,
    Fixed,
    Pem,
    ServerTrust,
    TokenFile,
    bearer,
)

pytestmark = pytest.mark.anyio

V1 = "client.authentication.k8s.io/v1"


def self_signed() -> tuple[bytes, bytes]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test")])
    now = datetime.now(UTC)
    cert = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now)
        .not_valid_after(now + timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return cert.public_bytes(serialization.Encoding.PEM), private


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


class Source:
    """A credential that is another one each time, good for 100 seconds."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.loads = 0

    async def load(self) -> Credential:
        self.loads += 1
        return Credential(bearer(f"t{self.loads}"), good_until=self.clock.now + 100)


async def token(auth: Authenticator) -> str:
    return (await auth.identity()).headers["Authorization"].removeprefix("Bearer ")


async def test_an_identity_is_kept_until_it_is_due() -> None:
    clock = Clock()
    auth = Authenticator(Source(clock), trust=ServerTrust(), clock=clock)
    assert [await token(auth), await token(auth)] == ["t1", "t1"]
    clock.now += 100
    assert await token(auth) == "t2"


async def test_a_rejected_identity_is_replaced_once_for_all_who_used_it() -> None:
    source = Source(Clock())
    auth = Authenticator(source, trust=ServerTrust(), clock=source.clock)
    used = await auth.identity()
    assert auth.reject(used)
    assert auth.reject(used)
    assert await token(auth) == "t2"
    assert auth.reject(used), "a late 401 for the old one"
    assert await token(auth) == "t2"


async def test_a_fixed_identity_has_no_second_chance() -> None:
    auth = Authenticator(Fixed(Credential(bearer("t"))), trust=ServerTrust())
    assert not auth.reject(await auth.identity())


async def test_a_token_file_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("one\n")
    auth = Authenticator(TokenFile(path), trust=ServerTrust())
    identity = await auth.identity()
    path.write_text("two")
    assert await token(auth) == "one"
    assert auth.reject(identity)
    assert await token(auth) == "two"


@pytest.mark.parametrize(("content", "message"), [("", "is empty"), (None, "cannot read")])
async def test_a_token_file_without_token_says_so(tmp_path: Path, content: str | None, message: str) -> None:
    path = tmp_path / "token"
    if content is not None:
        path.write_text(content)
    with pytest.raises(CredentialsFailed, match=message):
        await TokenFile(path).load()


async def test_certificates_are_read_again_and_the_context_stays_while_they_are_the_same(tmp_path: Path) -> None:
    clock = Clock()
    cert, key = self_signed()
    files = {name: tmp_path / name for name in ("ca", "cert", "key")}
    for name, content in (("ca", cert), ("cert", cert), ("key", key)):
        files[name].write_bytes(content)
    pair = Certificate(Pem(file=files["cert"]), Pem(file=files["key"]))
    source = Fixed(Credential(certificate=pair))
    auth = Authenticator(source, trust=ServerTrust(Pem(file=files["ca"])), clock=clock)
    first = (await auth.identity()).ssl
    clock.now += 61
    assert (await auth.identity()).ssl is first
    cert, key = self_signed()
    files["cert"].write_bytes(cert)
    files["key"].write_bytes(key)
    clock.now += 61
    assert (await auth.identity()).ssl is not first


async def test_a_pair_that_does_not_match_is_an_error_not_a_crash() -> None:
    (cert, _), (_, key) = self_signed(), self_signed()
    auth = Authenticator(Fixed(Credential(certificate=Certificate(Pem(cert), Pem(key)))), trust=ServerTrust())
    with pytest.raises(CredentialsFailed, match="client-certificate and client-key cannot be read, or do not belong"):
        await auth.identity()


@pytest.mark.parametrize("content", [b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", b"\xff"])
async def test_an_authority_that_is_none_is_named(content: bytes, tmp_path: Path) -> None:
    with pytest.raises(CredentialsFailed, match="certificate-authority holds no certificate"):
        await Authenticator(Fixed(Credential()), trust=ServerTrust(Pem(content))).identity()
    missing = tmp_path / "ca.crt"
    with pytest.raises(CredentialsFailed, match=f"cannot read {missing}: No such file"):
        await Authenticator(Fixed(Credential()), trust=ServerTrust(Pem(file=missing))).identity()


async def test_the_server_is_verified_unless_that_was_given_up() -> None:
    strict = (await Authenticator(Fixed(Credential()), trust=ServerTrust()).identity()).ssl
    assert (strict.verify_mode, strict.check_hostname) == (ssl.CERT_REQUIRED, True)
    loose = (await Authenticator(Fixed(Credential()), trust=ServerTrust(insecure=True)).identity()).ssl
    assert (loose.verify_mode, loose.check_hostname) == (ssl.CERT_NONE, False)


def program(tmp_path: Path, script: str) -> str:
    path = tmp_path / "login"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return "./login"


def plugin(tmp_path: Path, command: str, **options: Any) -> ExecPlugin:
    defaults: dict[str, Any] = {
        "api_version": V1,
        "args": (),
        "env": {},
        "install_hint": "",
        "interactive": "Never",
        "cluster_info": None,
        "origin": "config: user 'u'",
    }
    return ExecPlugin(command=command, directory=tmp_path, **{**defaults, **options})


def answer(status: Mapping[str, Any], version: str = V1) -> str:
    body = {"apiVersion": version, "kind": "ExecCredential", "status": dict(status)}
    return f"cat <<'END'\n{json.dumps(body)}\nEND"


async def test_a_plugin_prints_a_token_that_expires(tmp_path: Path) -> None:
    expires = datetime.now(UTC) + timedelta(hours=1)
    stamp = expires.strftime("%Y-%m-%dT%H:%M:%SZ")
    made = plugin(tmp_path, program(tmp_path, answer({"token": "t", "expirationTimestamp": stamp})))
    credential = await made.load()
    assert credential.headers == bearer("t")
    assert credential.good_until == pytest.approx(expires.timestamp() - 30, abs=1)


async def test_a_plugin_of_the_older_version_is_spoken_to_in_it(tmp_path: Path) -> None:
    older = "client.authentication.k8s.io/v1beta1"
    script = 'echo "$KUBERNETES_EXEC_INFO" > seen; ' + answer({"token": "t"}, older)
    command = program(tmp_path, f"cd {tmp_path}; {script}")
    credential = await plugin(tmp_path, command, api_version=older).load()
    assert credential.headers == bearer("t")
    assert json.loads((tmp_path / "seen").read_text())["apiVersion"] == older


async def test_a_plugin_that_is_no_program_is_named(tmp_path: Path) -> None:
    command = program(tmp_path, "")
    (tmp_path / command).write_bytes(b"\x7fELF nothing")
    with pytest.raises(CredentialsFailed, match=r"user 'u': .* cannot be started \(Exec format error\)"):
        await plugin(tmp_path, command).load()


async def test_a_plugin_can_give_a_certificate(tmp_path: Path) -> None:
    cert, key = self_signed()
    status = {"clientCertificateData": cert.decode(), "clientKeyData": key.decode()}
    credential = await plugin(tmp_path, program(tmp_path, answer(status))).load()
    assert credential.certificate == Certificate(Pem(cert), Pem(key))
    assert credential.good_until == float("inf")


async def test_a_plugin_is_told_who_asks(tmp_path: Path) -> None:
    script = 'echo "$KUBERNETES_EXEC_INFO $E $1 $PATH" > seen; ' + answer({"token": "t"})
    command = program(tmp_path, f"cd {tmp_path}; {script}")
    await plugin(tmp_path, command, args=("arg",), env={"E": "env"}, cluster_info={"server": "https://x"}).load()
    info, rest = (tmp_path / "seen").read_text().rsplit("} ", 1)
    assert json.loads(info + "}") == {
        "apiVersion": V1,
        "kind": "ExecCredential",
        "spec": {"interactive": False, "cluster": {"server": "https://x"}},
    }
    assert rest.split(" ")[:2] == ["env", "arg"]
    assert os.environ["PATH"] in rest


FAILING: dict[str, tuple[str, str]] = {
    "exit code": ("echo working; echo 'log in first' >&2; exit 3", "exited with 3: log in first"),
    "silent exit": ("exit 1", "exited with 1: no message"),
    "no JSON": ("echo secret-token", "printed no valid ExecCredential"),
    "no status": ("echo '{}'", "printed no valid ExecCredential"),
    "a list": ("echo '[]'", "printed no valid ExecCredential"),
    "nothing in it": (answer({}), "returned neither a token nor a certificate"),
    "half a pair": (answer({"clientCertificateData": "x"}), "printed no valid ExecCredential"),
    "bad time": (answer({"token": "t", "expirationTimestamp": "soon"}), "printed no valid ExecCredential"),
    "another version": (answer({"token": "t"}, "v9"), "answered in v9, user.exec.apiVersion asks for"),
}


@pytest.mark.parametrize(("script", "message"), FAILING.values(), ids=FAILING)
async def test_a_plugin_that_fails_is_named_and_its_output_is_not(tmp_path: Path, script: str, message: str) -> None:
    made = plugin(tmp_path, program(tmp_path, script))
    with pytest.raises(CredentialsFailed, match=message) as caught:
        await made.load()
    assert str(caught.value).startswith("config: user 'u': ./login ")
    assert "secret-token" not in str(caught.value)


async def test_a_plugin_that_hangs_is_ended(tmp_path: Path) -> None:
    made = plugin(tmp_path, program(tmp_path, "exec sleep 60"), timeout=0.05)
    with pytest.raises(CredentialsFailed, match="no credential within"):
        await made.load()


async def test_a_plugin_that_is_not_installed_comes_with_its_hint(tmp_path: Path) -> None:
    made = plugin(tmp_path, "no-such-login", install_hint="run:\n  get login")
    with pytest.raises(CredentialsFailed, match="'no-such-login' is not installed; run: get login"):
        await made.load()


async def test_a_plugin_that_must_ask_needs_a_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", None)
    with pytest.raises(CredentialsFailed, match="must ask at a terminal"):
        await plugin(tmp_path, program(tmp_path, answer({"token": "t"})), interactive="Always").load()

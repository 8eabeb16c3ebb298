"""Who we are towards an API server: tokens, client certificates, exec plugins; each re-read before it expires."""

import asyncio
import base64
import binascii
import os
import shutil
import ssl
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

import orjson

from fairway.kube.errors import KubeError

_REREAD_AFTER = 60.0
_EXPIRY_MARGIN = 30.0
_FOREVER = float("inf")


class AccessError(Exception):
    """There is no way into the cluster as configured. One line: which file and entry, what is wrong, what to do."""


class CredentialsFailed(KubeError):
    """Credentials could not be renewed just now; the message says how to cure it."""


@dataclass(frozen=True, slots=True)
class Pem:
    """PEM text, inline or in a file that may be rewritten while we run."""

    data: bytes = field(default=b"", repr=False)
    file: Path | None = None

    def read(self) -> bytes:
        return self.data if self.file is None else self.file.read_bytes()


@dataclass(frozen=True, slots=True)
class Certificate:
    cert: Pem
    key: Pem


@dataclass(frozen=True, slots=True)
class Credential:
    """What a credential source yields: header values and maybe a certificate, good until a time of the wall clock."""

    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    certificate: Certificate | None = None
    good_until: float = _FOREVER


class CredentialSource(Protocol):
    async def load(self) -> Credential: ...


@dataclass(frozen=True, slots=True)
class Fixed:
    """A token, a password, a certificate, or nothing, straight from the kubeconfig."""

    credential: Credential

    async def load(self) -> Credential:
        return self.credential


@dataclass(frozen=True, slots=True)
class TokenFile:
    """A token in a file that somebody else (the kubelet) renews in place."""

    path: Path
    certificate: Certificate | None = None

    async def load(self) -> Credential:
        try:
            token = self.path.read_text("utf-8").strip()
        except OSError as error:
            raise CredentialsFailed(f"cannot read the token file {self.path}: {error.strerror}") from error
        if not token:
            raise CredentialsFailed(f"the token file {self.path} is empty")
        return Credential(bearer(token), self.certificate, time.time() + _REREAD_AFTER)


@dataclass(frozen=True, slots=True)
class ExecPlugin:
    """A program that prints an ExecCredential."""

    api_version: str
    command: str
    args: tuple[str, ...]
    env: Mapping[str, str] = field(repr=False)
    directory: Path
    install_hint: str
    interactive: str
    cluster_info: Mapping[str, Any] | None
    origin: str
    timeout: float = 60.0

    async def load(self) -> Credential:
        program = self._program()
        terminal = sys.stdin is not None and sys.stdin.isatty()
        if self.interactive == "Always" and not terminal:
            raise CredentialsFailed(f"{self.origin}: {self.command} must ask at a terminal, and there is none")
        spec: dict[str, Any] = {"interactive": terminal and self.interactive != "Never"}
        if self.cluster_info is not None:
            spec["cluster"] = dict(self.cluster_info)
        info = {"apiVersion": self.api_version, "kind": "ExecCredential", "spec": spec}
        try:
            child = await asyncio.create_subprocess_exec(
                program,
                *self.args,
                stdin=None if spec["interactive"] else asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env={**os.environ, **self.env, "KUBERNETES_EXEC_INFO": orjson.dumps(info).decode()},
            )
        except OSError as error:
            raise CredentialsFailed(
                f"{self.origin}: {self.command} cannot be started ({error.strerror or error})"
            ) from None
        try:
            out, err = await asyncio.wait_for(child.communicate(), self.timeout)
        except TimeoutError:
            raise CredentialsFailed(
                f"{self.origin}: {self.command} gave no credential within {self.timeout:g}s"
            ) from None
        finally:
            if child.returncode is None:
                child.kill()
                await child.wait()
        if child.returncode:
            last = err.decode("utf-8", "replace").strip().splitlines()[-1:] or ["no message"]
            raise CredentialsFailed(f"{self.origin}: {self.command} exited with {child.returncode}: {last[0]}")
        return self._parse(out)

    def _program(self) -> str:
        # As kubectl does: a path with a slash is relative to the kubeconfig, a bare name is looked up on the PATH.
        candidate = str(self.directory / self.command) if "/" in self.command else self.command
        found = shutil.which(candidate)
        if found is None:
            hint = (
                f"; {' '.join(self.install_hint.split())}"
                if self.install_hint
                else "; install it or fix user.exec.command"
            )
            raise CredentialsFailed(f"{self.origin}: the exec plugin {self.command!r} is not installed{hint}")
        return found

    def _parse(self, out: bytes) -> Credential:
        try:
            body = orjson.loads(out)
            status = body["status"]
            certificate = None
            if status.get("clientCertificateData"):
                cert, key = status["clientCertificateData"].encode(), status["clientKeyData"].encode()
                certificate = Certificate(Pem(cert), Pem(key))
            expires = status.get("expirationTimestamp")
            until = datetime.fromisoformat(expires).timestamp() - _EXPIRY_MARGIN if expires else _FOREVER
            headers = bearer(status["token"]) if status.get("token") else {}
        except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError, ValueError):
            # Not even an excerpt of the output: it may hold the token.
            raise CredentialsFailed(f"{self.origin}: {self.command} printed no valid ExecCredential") from None
        if body.get("apiVersion") != self.api_version:
            raise CredentialsFailed(
                f"{self.origin}: {self.command} answered in {body.get('apiVersion')}, "
                f"user.exec.apiVersion asks for {self.api_version}"
            )
        if not headers and certificate is None:
            raise CredentialsFailed(f"{self.origin}: {self.command} returned neither a token nor a certificate")
        return Credential(headers, certificate, until)


@dataclass(frozen=True, slots=True)
class ServerTrust:
    """How the server proves itself: a CA bundle (the system's if none is named), or not at all."""

    ca: Pem | None = None
    insecure: bool = False


@dataclass(frozen=True, slots=True)
class Identity:
    headers: Mapping[str, str]
    ssl: ssl.SSLContext


class Authenticator:
    """The current identity for the next request; renewed when due, or after `reject` because a server said 401."""

    def __init__(
        self,
        source: CredentialSource,
        *,
        trust: ServerTrust,
        extra_headers: Mapping[str, str] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._source = source
        self._trust = trust
        self._extra = dict(extra_headers or {})
        self._clock = clock
        self._identity: Identity | None = None
        self._good_until = 0.0
        self._material: tuple[bytes, bytes, bytes] | None = None
        self._context: ssl.SSLContext | None = None
        self._lock = asyncio.Lock()

    async def identity(self) -> Identity:
        if self._identity is None or self._clock() >= self._good_until:
            async with self._lock:
                if self._identity is None or self._clock() >= self._good_until:
                    await self._renew()
        assert self._identity is not None
        return self._identity

    def reject(self, identity: Identity) -> bool:
        """The server refused this identity. True if asking the source again may give another."""
        if isinstance(self._source, Fixed) and not self._files_may_change():
            return False
        if identity is self._identity:
            self._good_until = 0.0
        return True

    async def _renew(self) -> None:
        try:
            credential = await self._source.load()
            context = self._ssl(credential.certificate)
        except OSError as error:
            raise CredentialsFailed(f"cannot read {error.filename}: {error.strerror}") from error
        self._identity = Identity({**credential.headers, **self._extra}, context)
        reread = self._clock() + _REREAD_AFTER if self._files_may_change(credential) else _FOREVER
        self._good_until = min(credential.good_until, reread)

    def _files_may_change(self, credential: Credential | None = None) -> bool:
        if credential is None and isinstance(self._source, Fixed):
            credential = self._source.credential
        pems = [self._trust.ca]
        if credential and credential.certificate:
            pems += [credential.certificate.cert, credential.certificate.key]
        return any(pem is not None and pem.file is not None for pem in pems)

    def _ssl(self, certificate: Certificate | None) -> ssl.SSLContext:
        material = (
            self._trust.ca.read() if self._trust.ca else b"",
            certificate.cert.read() if certificate else b"",
            certificate.key.read() if certificate else b"",
        )
        # The same context as long as nothing changed: a new one would mean new connections.
        if self._context is None or material != self._material:
            self._context = tls_context(*material, insecure=self._trust.insecure)
            self._material = material
        return self._context


def tls_context(ca: bytes, cert: bytes, key: bytes, *, insecure: bool = False) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cadata=ca.decode("ascii") if ca else None)
    except (ssl.SSLError, UnicodeDecodeError) as error:
        raise CredentialsFailed("certificate-authority holds no certificate that can be read; copy it again") from error
    if insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if cert:
        # OpenSSL takes the pair only from files; these live for the length of this call, readable by us alone.
        with tempfile.TemporaryDirectory(prefix="kube-") as directory:
            pair = Path(directory, "cert"), Path(directory, "key")
            for path, content in zip(pair, (cert, key), strict=True):
                path.touch(mode=0o600)
                path.write_bytes(content)
            try:
                context.load_cert_chain(*pair)
            except ssl.SSLError as error:
                raise CredentialsFailed(
                    "client-certificate and client-key cannot be read, or do not belong together; copy both again"
                ) from error
    return context


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def basic(user: str, password: str) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()}


def decode_base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError("is not base64") from error

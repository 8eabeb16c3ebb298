"""The proxy's own certificate: read again when its files change, and never half of a new one."""

import logging
import ssl
from pathlib import Path
from typing import Final

from fairway.api.runconfig import ListenTLS
from fairway.proxy.files import Fingerprint, fingerprint

log: Final = logging.getLogger("fairway.proxy")


class NoCertificate(Exception):
    """There is no pair of files to serve with; the message names them and says why."""


class Certificate:
    """One pair of files. `context` serves the last good pair; `error` says what is wrong with a newer one."""

    def __init__(self, tls: ListenTLS) -> None:
        """Raises NoCertificate."""
        self._tls = tls
        self._seen = self._fingerprint()
        self.error = ""
        self._good = self._load()
        self.context = _context(tls)
        # a context cannot be changed safely while connections begin with it, so each is handed over to the newest
        self.context.sni_callback = self._choose

    def refresh(self) -> bool:
        """Looks at the files; whether anything changed."""
        now = self._fingerprint()
        if now == self._seen:
            return False
        self._seen = now
        try:
            self._good = self._load()
            self.error = ""
            log.info("certificate read again", extra={"file": self._tls.cert_file})
        except NoCertificate as error:
            self.error = str(error)
        return True

    def _choose(self, connection: ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> None:  # noqa: ARG002
        connection.context = self._good

    def _fingerprint(self) -> Fingerprint:
        return fingerprint([Path(self._tls.cert_file), Path(self._tls.key_file)])

    def _load(self) -> ssl.SSLContext:
        try:
            return _context(self._tls)
        except (OSError, ValueError) as error:
            why = _why(error)
            raise NoCertificate(f"listen.tls: {self._tls.cert_file} and {self._tls.key_file}: {why}") from None


def _context(tls: ListenTLS) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    # an encrypted key must not make the proxy ask for a password on its terminal
    context.load_cert_chain(tls.cert_file, tls.key_file, password=_no_password)
    return context


def _no_password() -> str:
    raise ValueError("the key is encrypted, and there is nobody to ask for its password")


def _why(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return (error.reason or "not PEM").replace("_", " ").lower()
    return getattr(error, "strerror", None) or str(error)

"""An authority for tests, and the certificates that it signs."""

import datetime
import ssl
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

_PEM = serialization.Encoding.PEM


class Authority:
    """Keeps everything in files of one directory."""

    def __init__(self, directory: Path, name: str = "ca") -> None:
        self.directory = directory
        self.name = name
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._cert = self._sign(name, self._key.public_key(), None, authority=True)
        self.file = self._write(f"{name}.crt", self._cert.public_bytes(_PEM))

    def issue(self, *names: str, file: str = "tls") -> tuple[str, str]:
        """Certificate and key, each in a file that replaces one of the same name."""
        key = ec.generate_private_key(ec.SECP256R1())
        cert = self._sign(names[0], key.public_key(), names, authority=False)
        secret = key.private_bytes(_PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        return self._write(f"{file}.crt", cert.public_bytes(_PEM)), self._write(f"{file}.key", secret)

    def client(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=self.file)

    def server(self, *names: str) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*self.issue(*names, file="server"))
        return context

    def _sign(self, name: str, key, names: tuple[str, ...] | None, *, authority: bool) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
        issuer = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, self.name)])
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(days=2))
            .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
        )
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName([_general(each) for each in names]), False)
        return builder.sign(self._key, hashes.SHA256())

    def _write(self, name: str, content: bytes) -> str:
        path = self.directory / name
        fresh = path.with_suffix(path.suffix + ".new")
        fresh.write_bytes(content)
        fresh.replace(path)
        return str(path)


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)

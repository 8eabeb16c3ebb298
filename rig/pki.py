"""The certificates of one rig: one authority, a key pair for each component, made in memory and written once."""

import datetime
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from rig.files import write_changed
from rig.state import Network

NETWORK_POLICY_USER = "fairway-rig:network-policy"
LIFETIME = datetime.timedelta(days=3650)
# A machine whose clock was set back a little must still accept its own certificates.
BACKDATED = datetime.timedelta(hours=1)


@dataclass(frozen=True)
class Identity:
    """One certificate: who it names, and whether it serves or connects."""

    name: str
    common_name: str
    organisation: str = ""
    serves: Sequence[str] = ()


def identities(*, network: Network, node: str) -> list[Identity]:
    service_names = ["kubernetes", "kubernetes.default", "kubernetes.default.svc"]
    return [
        Identity(
            name="apiserver",
            common_name="kube-apiserver",
            serves=[
                "127.0.0.1",
                network.host_address,
                network.kubernetes_service,
                "localhost",
                *service_names,
                "kubernetes.default.svc.cluster.local",
            ],
        ),
        Identity(name="kubelet-server", common_name=node, serves=["127.0.0.1", network.node_address, node]),
        Identity(name="admin", common_name="admin", organisation="system:masters"),
        Identity(name="apiserver-kubelet", common_name="kube-apiserver-kubelet", organisation="system:masters"),
        Identity(name="controller-manager", common_name="system:kube-controller-manager"),
        Identity(name="scheduler", common_name="system:kube-scheduler"),
        Identity(name="proxy", common_name="system:kube-proxy"),
        Identity(name="kubelet", common_name=f"system:node:{node}", organisation="system:nodes"),
        Identity(name="network-policy", common_name=NETWORK_POLICY_USER),
        Identity(name="front-proxy", common_name="front-proxy"),
    ]


def ensure_pki(directory: Path, wanted: Sequence[Identity]) -> None:
    """Write the authority, the key pair of service accounts and every identity, as far as they are not there yet."""
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    if not (directory / "ca.crt").exists():
        authority_key = _new_key()
        _write(directory / "ca.key", _private_pem(authority_key))
        _write(directory / "ca.crt", _authority(authority_key).public_bytes(serialization.Encoding.PEM))
    if not (directory / "service-account.pub").exists():
        tokens = _new_key()
        _write(directory / "service-account.key", _private_pem(tokens))
        public = tokens.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        _write(directory / "service-account.pub", public)
    authority = x509.load_pem_x509_certificate((directory / "ca.crt").read_bytes())
    signer = serialization.load_pem_private_key((directory / "ca.key").read_bytes(), password=None)
    assert isinstance(signer, ec.EllipticCurvePrivateKey)
    for identity in wanted:
        if (directory / f"{identity.name}.crt").exists():
            continue
        key = _new_key()
        certificate = _certificate(identity, key, authority=authority, authority_key=signer)
        # The certificate last: where it is, its key is too.
        _write(directory / f"{identity.name}.key", _private_pem(key))
        _write(directory / f"{identity.name}.crt", certificate.public_bytes(serialization.Encoding.PEM))


def _new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def _authority(key: ec.EllipticCurvePrivateKey) -> x509.Certificate:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "fairway-rig")])
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(now + LIFETIME)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(_key_usage(certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )


def _certificate(
    identity: Identity,
    key: ec.EllipticCurvePrivateKey,
    *,
    authority: x509.Certificate,
    authority_key: ec.EllipticCurvePrivateKey,
) -> x509.Certificate:
    subject = [x509.NameAttribute(NameOID.COMMON_NAME, identity.common_name)]
    if identity.organisation:
        subject.insert(0, x509.NameAttribute(NameOID.ORGANIZATION_NAME, identity.organisation))
    now = datetime.datetime.now(datetime.UTC)
    usage = ExtendedKeyUsageOID.SERVER_AUTH if identity.serves else ExtendedKeyUsageOID.CLIENT_AUTH
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name(subject))
        .issuer_name(authority.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(now + LIFETIME)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        # Python 3.13 verifies strictly and refuses certificates that do not name their authority's key.
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), critical=False)
    )
    if identity.serves:
        names = x509.SubjectAlternativeName([_general_name(name) for name in identity.serves])
        builder = builder.add_extension(names, critical=False)
    return builder.sign(authority_key, hashes.SHA256())


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _key_usage(*, certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=certificates,
        crl_sign=certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _write(path: Path, content: bytes) -> None:
    write_changed(path, content.decode(), mode=0o600)

import ipaddress
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from rig.pki import Identity, ensure_pki, identities
from rig.state import Network

NETWORK = Network(block=200)


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("rig") / "pki"
    ensure_pki(directory, identities(network=NETWORK, node="n1"))
    return directory


def certificate(pki: Path, name: str) -> x509.Certificate:
    return x509.load_pem_x509_certificate((pki / f"{name}.crt").read_bytes())


def test_every_identity_is_signed_by_the_one_authority(pki: Path) -> None:
    authority = certificate(pki, "ca")
    for identity in identities(network=NETWORK, node="n1"):
        certificate(pki, identity.name).verify_directly_issued_by(authority)


def test_the_api_server_is_known_under_every_address_it_is_called_by(pki: Path) -> None:
    names = certificate(pki, "apiserver").extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    addresses = {str(address) for address in names.get_values_for_type(x509.IPAddress)}
    assert addresses == {"127.0.0.1", NETWORK.host_address, NETWORK.kubernetes_service}
    assert "kubernetes.default.svc" in names.get_values_for_type(x509.DNSName)


def test_servers_serve_and_clients_connect(pki: Path) -> None:
    for name, usage in (("apiserver", ExtendedKeyUsageOID.SERVER_AUTH), ("admin", ExtendedKeyUsageOID.CLIENT_AUTH)):
        extension = certificate(pki, name).extensions.get_extension_for_class(x509.ExtendedKeyUsage)
        assert list(extension.value) == [usage]


def test_the_kubelet_is_the_node_that_it_says(pki: Path) -> None:
    subject = certificate(pki, "kubelet").subject
    assert [a.value for a in subject.get_attributes_for_oid(NameOID.COMMON_NAME)] == ["system:node:n1"]
    assert [a.value for a in subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)] == ["system:nodes"]


def test_only_the_admin_and_the_api_server_are_masters(pki: Path) -> None:
    masters = {
        identity.name
        for identity in identities(network=NETWORK, node="n1")
        if identity.organisation == "system:masters"
    }
    assert masters == {"admin", "apiserver-kubelet"}


def test_nobody_else_may_read_the_keys(pki: Path) -> None:
    assert pki.stat().st_mode & 0o077 == 0
    for path in pki.iterdir():
        assert path.stat().st_mode & 0o077 == 0, path


def test_certificates_are_made_once_and_new_identities_join(tmp_path: Path) -> None:
    directory = tmp_path / "pki"
    ensure_pki(directory, [Identity(name="a", common_name="a")])
    before = {path.name: path.read_bytes() for path in directory.iterdir()}
    ensure_pki(directory, [Identity(name="a", common_name="a"), Identity(name="b", common_name="b")])
    after = {path.name: path.read_bytes() for path in directory.iterdir()}
    assert {name: after[name] for name in before} == before
    assert after.keys() - before.keys() == {"b.crt", "b.key"}
    certificate(directory, "b").verify_directly_issued_by(certificate(directory, "ca"))


def test_an_interrupted_start_is_made_good(tmp_path: Path) -> None:
    directory = tmp_path / "pki"
    ensure_pki(directory, [Identity(name="a", common_name="a")])
    (directory / "a.crt").unlink()
    ensure_pki(directory, [Identity(name="a", common_name="a")])
    key = certificate(directory, "a").public_key()
    assert isinstance(key, ec.EllipticCurvePublicKey)
    assert isinstance(key.curve, ec.SECP256R1)


def test_every_address_in_a_certificate_is_one() -> None:
    for identity in identities(network=NETWORK, node="n1"):
        for name in identity.serves:
            if name[0].isdigit():
                ipaddress.ip_address(name)

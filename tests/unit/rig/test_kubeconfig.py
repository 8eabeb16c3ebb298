import base64
import ssl
from pathlib import Path

import pytest
import yaml

from rig.errors import RigError
from rig.kubeconfig import certificate_user, read_kubeconfig, write_kubeconfig
from rig.pki import ensure_pki, identities
from rig.state import Network


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("rig") / "pki"
    ensure_pki(directory, identities(network=Network(block=200), node="n1"))
    return directory


def write(path: Path, pki: Path, **user: str) -> None:
    ca_pem = (pki / "ca.crt").read_text()
    write_kubeconfig(path, server="https://127.0.0.1:1", ca_pem=ca_pem, user=user or certificate_user(pki, "admin"))


def test_what_is_written_can_be_read(tmp_path: Path, pki: Path) -> None:
    path = tmp_path / "kubeconfig"
    write(path, pki)
    access = read_kubeconfig(path)
    assert access.server == "https://127.0.0.1:1"
    assert access.ca_pem == (pki / "ca.crt").read_text()
    assert access.token == ""
    assert isinstance(access.tls, ssl.SSLContext)
    assert len(access.tls.get_ca_certs()) == 1


def test_only_the_owner_may_read_it(tmp_path: Path, pki: Path) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text("old")
    path.chmod(0o644)
    write(path, pki)
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_token_is_read(tmp_path: Path, pki: Path) -> None:
    write(tmp_path / "kubeconfig", pki, token="t1")
    assert read_kubeconfig(tmp_path / "kubeconfig").token == "t1"


def test_files_are_found_beside_the_kubeconfig(tmp_path: Path, pki: Path) -> None:
    for name in ("ca.crt", "admin.crt", "admin.key"):
        (tmp_path / name).write_text((pki / name).read_text())
    config = {
        "clusters": [{"name": "c", "cluster": {"server": "https://h", "certificate-authority": "ca.crt"}}],
        "users": [{"name": "u", "user": {"client-certificate": "admin.crt", "client-key": "admin.key"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    (tmp_path / "config").write_text(yaml.safe_dump(config))
    assert read_kubeconfig(tmp_path / "config").server == "https://h"


def test_a_kubeconfig_that_is_not_there_says_how_to_get_one(tmp_path: Path) -> None:
    with pytest.raises(RigError, match="rig up"):
        read_kubeconfig(tmp_path / "nope")


@pytest.mark.parametrize("text", ["", "[", "a: b", "contexts: []\ncurrent-context: x", "current-context: 1"])
def test_an_incomplete_kubeconfig_is_no_traceback(tmp_path: Path, text: str) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(text)
    with pytest.raises(RigError, match="no complete kubeconfig"):
        read_kubeconfig(path)


def test_a_login_plugin_is_refused_by_name(tmp_path: Path, pki: Path) -> None:
    path = tmp_path / "kubeconfig"
    write(path, pki)
    config = yaml.safe_load(path.read_text())
    config["users"][0]["user"] = {"exec": {"command": "aws"}}
    path.write_text(yaml.safe_dump(config))
    with pytest.raises(RigError, match="plug-in"):
        read_kubeconfig(path)


def test_no_copy_of_the_key_stays_behind(tmp_path: Path, pki: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    write(tmp_path / "kubeconfig", pki)
    read_kubeconfig(tmp_path / "kubeconfig")
    assert [path.name for path in tmp_path.iterdir()] == ["kubeconfig"]
    encoded = base64.b64encode((pki / "admin.key").read_bytes()).decode()
    assert encoded in (tmp_path / "kubeconfig").read_text()

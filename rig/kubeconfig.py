"""Kubeconfig files: written for every component, read for whoever brings a cluster of their own."""

import base64
import ssl
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from rig.errors import RigError
from rig.files import write_changed


@dataclass(frozen=True)
class Access:
    """Where an API server is, and how to be let in."""

    server: str
    tls: ssl.SSLContext
    ca_pem: str
    token: str = ""


def write_kubeconfig(path: Path, *, server: str, ca_pem: str, user: Mapping[str, str], namespace: str = "") -> None:
    """One cluster, one user, one context; readable by the owner alone."""
    context = {"cluster": "rig", "user": "rig"} | ({"namespace": namespace} if namespace else {})
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "rig", "cluster": {"server": server, "certificate-authority-data": _encoded(ca_pem)}}],
        "users": [{"name": "rig", "user": dict(user)}],
        "contexts": [{"name": "rig", "context": context}],
        "current-context": "rig",
    }
    write_changed(path, yaml.safe_dump(config, sort_keys=False), mode=0o600)


def certificate_user(pki: Path, name: str) -> dict[str, str]:
    return {
        "client-certificate-data": _encoded((pki / f"{name}.crt").read_text()),
        "client-key-data": _encoded((pki / f"{name}.key").read_text()),
    }


def read_kubeconfig(path: Path) -> Access:
    """The current context of a kubeconfig that logs in with a certificate or a token."""
    try:
        config = yaml.safe_load(path.read_text())
        context = _named(config["contexts"], config["current-context"])["context"]
        cluster = _named(config["clusters"], context["cluster"])["cluster"]
        user = _named(config["users"], context["user"])["user"]
        server = str(cluster["server"])
    except FileNotFoundError:
        raise RigError(f"there is no kubeconfig {path}", fix="python -m rig up, or unset RIG_KUBECONFIG") from None
    except (yaml.YAMLError, KeyError, TypeError) as error:
        raise RigError(f"{path} is no complete kubeconfig ({type(error).__name__}: {error})") from None
    if "exec" in user or "auth-provider" in user:
        raise RigError(f"{path} logs in with a plug-in", fix="use a kubeconfig with a certificate or a token")
    ca_pem = _content(path, cluster, "certificate-authority")
    tls = ssl.create_default_context(cadata=ca_pem or None)
    certificate, key = _content(path, user, "client-certificate"), _content(path, user, "client-key")
    if certificate and key:
        _load_certificate(tls, certificate, key)
    return Access(server=server, tls=tls, ca_pem=ca_pem, token=str(user.get("token", "")))


def _load_certificate(tls: ssl.SSLContext, certificate: str, key: str) -> None:
    # ssl reads certificates from files only; these exist for the blink of an eye, for the owner alone.
    with tempfile.TemporaryDirectory(prefix="fairway-rig-") as directory:
        chain = Path(directory) / "client.pem"
        chain.touch(mode=0o600)
        chain.write_text(f"{certificate}\n{key}\n")
        tls.load_cert_chain(chain)


def _named(items: list[dict[str, Any]], name: str) -> dict[str, Any]:
    for item in items:
        if item["name"] == name:
            return item
    raise KeyError(name)


def _content(kubeconfig: Path, section: Mapping[str, str], key: str) -> str:
    if section.get(key):
        return (kubeconfig.parent / section[key]).read_text()
    return base64.b64decode(section.get(f"{key}-data", "")).decode()


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()

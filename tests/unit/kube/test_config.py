"""Kubeconfigs: which one, which entry, and one helpful line about everything that can be wrong."""

import base64
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from fairway.kube.config import AccessError, load_access
from fairway.kube.credentials import Certificate, ExecPlugin, Fixed, Pem, TokenFile
from fairway.kube.transport import Transport

PEM = "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n"
B64 = base64.b64encode(PEM.encode()).decode()

Write = Callable[..., Path]


def kubeconfig(
    *, cluster: dict[str, Any] | None = None, user: dict[str, Any] | None = None, **more: Any
) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "dev",
        "contexts": [{"name": "dev", "context": {"cluster": "c", "user": "u", "namespace": "team"}}],
        "clusters": [{"name": "c", "cluster": {"server": "https://10.0.0.1:6443", **(cluster or {})}}],
        "users": [{"name": "u", "user": user or {}}],
        **more,
    }


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def writing(document: Any, name: str = "config") -> Path:
        path = tmp_path / name
        path.write_text(document if isinstance(document, str) else yaml.safe_dump(document))
        return path

    return writing


def test_a_plain_file(write: Write) -> None:
    access = load_access(kubeconfig=write(kubeconfig(user={"token": "secret"})))
    assert (access.server, access.namespace) == ("https://10.0.0.1:6443", "team")
    assert isinstance(access.source, Fixed)
    assert access.source.credential.headers == {"Authorization": "Bearer secret"}


def test_secrets_are_not_in_what_is_printed(write: Write) -> None:
    user = {"token": "sesame", "client-certificate-data": B64, "client-key-data": B64}
    access = load_access(kubeconfig=write(kubeconfig(user=user)))
    assert "sesame" not in repr(access)
    assert "BEGIN" not in repr(access)


def test_paths_are_relative_to_the_file_and_data_wins(write: Write, tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_text(PEM)
    access = load_access(kubeconfig=write(kubeconfig(cluster={"certificate-authority": "ca.crt"})))
    assert access.trust.ca == Pem(file=tmp_path / "ca.crt")
    both = {"certificate-authority": "missing.crt", "certificate-authority-data": B64}
    access = load_access(kubeconfig=write(kubeconfig(cluster=both)))
    assert access.trust.ca == Pem(PEM.encode())


def test_a_certificate_pair(write: Write, tmp_path: Path) -> None:
    (tmp_path / "key").write_text(PEM)
    user = {"client-certificate-data": B64, "client-key": "key"}
    access = load_access(kubeconfig=write(kubeconfig(user=user)))
    assert isinstance(access.source, Fixed)
    assert access.source.credential.certificate == Certificate(Pem(PEM.encode()), Pem(file=tmp_path / "key"))


def test_a_token_file_a_password_and_an_impersonation(write: Write, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("x")
    assert load_access(kubeconfig=write(kubeconfig(user={"tokenFile": "token"}))).source == TokenFile(
        tmp_path / "token"
    )
    access = load_access(kubeconfig=write(kubeconfig(user={"username": "u", "password": "p", "as": "jane"})))
    assert isinstance(access.source, Fixed)
    assert access.source.credential.headers == {"Authorization": "Basic dTpw"}
    assert access.headers == {"Impersonate-User": "jane"}


def test_an_exec_plugin(write: Write, tmp_path: Path) -> None:
    plugin = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": "./login",
        "args": ["a"],
        "env": [{"name": "E", "value": "1"}],
        "interactiveMode": "Never",
        "provideClusterInfo": True,
    }
    access = load_access(kubeconfig=write(kubeconfig(user={"exec": plugin})))
    assert isinstance(access.source, ExecPlugin)
    assert (access.source.args, access.source.env, access.source.directory) == (("a",), {"E": "1"}, tmp_path)
    assert access.source.cluster_info == {"server": "https://10.0.0.1:6443"}


def test_another_context_and_server_options(write: Write) -> None:
    document = kubeconfig(
        cluster={"insecure-skip-tls-verify": True, "tls-server-name": "api", "proxy-url": "http://proxy:3128"},
        contexts=[
            {"name": "dev", "context": {"cluster": "nowhere", "user": "u"}},
            {"name": "other", "context": {"cluster": "c"}},
        ],
    )
    access = load_access(kubeconfig=write(document), context="other")
    assert (access.trust.insecure, access.server_name, access.proxy_url) == (True, "api", "http://proxy:3128")
    assert access.namespace == "default"


def test_several_files_are_one_and_the_first_wins(write: Write, tmp_path: Path) -> None:
    first = write({"current-context": "dev", "users": [{"name": "u", "user": {"token": "first"}}]}, "one")
    second = write(kubeconfig(user={"token": "second"}), "two")
    environ = {"KUBECONFIG": os.pathsep.join((str(first), str(tmp_path / "absent"), str(second)))}
    access = load_access(environ=environ)
    assert isinstance(access.source, Fixed)
    assert access.source.credential.headers == {"Authorization": "Bearer first"}


@pytest.fixture
def service_account(tmp_path: Path) -> Path:
    directory = tmp_path / "sa"
    directory.mkdir()
    for name, text in (("token", "t"), ("ca.crt", PEM), ("namespace", "prod\n")):
        (directory / name).write_text(text)
    return directory


@pytest.mark.parametrize(
    ("host", "server"), [("10.96.0.1", "https://10.96.0.1:443"), ("fd00::1", "https://[fd00::1]:443")]
)
def test_in_a_pod_its_service_account(service_account: Path, host: str, server: str) -> None:
    environ = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": "443", "HOME": str(service_account)}
    access = load_access(environ=environ, service_account_dir=service_account)
    assert (access.server, access.namespace) == (server, "prod")
    assert access.source == TokenFile(service_account / "token")
    assert access.trust.ca == Pem(file=service_account / "ca.crt")


def test_a_kubeconfig_that_is_named_wins_over_the_pod(service_account: Path, write: Write) -> None:
    environ = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBECONFIG": str(write(kubeconfig()))}
    assert load_access(environ=environ, service_account_dir=service_account).server == "https://10.0.0.1:6443"


def test_home_is_the_last_resort(tmp_path: Path, write: Write) -> None:
    (tmp_path / ".kube").mkdir()
    write(kubeconfig(), ".kube/config")
    assert load_access(environ={"HOME": str(tmp_path)}, service_account_dir=tmp_path / "no").namespace == "team"


def test_no_cluster_at_all_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(AccessError, match=r"no cluster is configured: .*--kubeconfig or \$KUBECONFIG"):
        load_access(environ={"HOME": str(tmp_path)}, service_account_dir=tmp_path)


EXEC = {"apiVersion": "client.authentication.k8s.io/v1", "command": "x"}
BROKEN: dict[str, tuple[Any, str]] = {
    "not YAML": ("a: [1", r"config:1: is not valid YAML"),
    "tabs": ("a:\n\t- b", r"config:2: is not valid YAML"),
    "a list": ("- a", r"is not a kubeconfig"),
    "another kind": ({"kind": "Pod"}, r"is not a kubeconfig"),
    "empty": ("", r"no current-context; choose one with --context \(it has none\)"),
    "contexts no list": (kubeconfig(contexts={}), r"no context 'dev'; it has none"),
    "contexts a text": (kubeconfig(contexts="x"), r"contexts must be a list"),
    "nameless context": (kubeconfig(contexts=[{"context": {}}]), r"every entry of contexts needs a name"),
    "unknown context": (kubeconfig(**{"current-context": "prod"}), r"no context 'prod'; it has dev; choose one with"),
    "no cluster": (
        kubeconfig(contexts=[{"name": "dev", "context": {"user": "u"}}]),
        r"config: context 'dev': has no cluster; add one",
    ),
    "dangling cluster": (
        kubeconfig(contexts=[{"name": "dev", "context": {"cluster": "x"}}]),
        r"context 'dev': refers to cluster 'x', which is not there \(known: c\)",
    ),
    "dangling user": (
        kubeconfig(contexts=[{"name": "dev", "context": {"cluster": "c", "user": "x"}}]),
        r"refers to user 'x', which is not there \(known: u\)",
    ),
    "server no URL": (kubeconfig(cluster={"server": "10.0.0.1:6443"}), r"cluster 'c': server is .* must be a URL"),
    "server a number": (kubeconfig(cluster={"server": 3}), r"server must be a text, not int"),
    "CA not base64": (kubeconfig(cluster={"certificate-authority-data": "%%"}), r"-data is not base64"),
    "CA not PEM": (kubeconfig(cluster={"certificate-authority-data": "AAAA"}), r"holds no PEM block"),
    "CA file missing": (kubeconfig(cluster={"certificate-authority": "no.crt"}), r"no\.crt, which does not exist; fix"),
    "CA and insecure": (
        kubeconfig(cluster={"certificate-authority-data": B64, "insecure-skip-tls-verify": True}),
        r"both a CA and insecure-skip-tls-verify",
    ),
    "socks proxy": (kubeconfig(cluster={"proxy-url": "socks5://x"}), r"only proxies with an http:// URL"),
    "half a pair": (
        kubeconfig(user={"client-certificate-data": B64}),
        r"user 'u': has client-certificate but no client-key",
    ),
    "other half": (kubeconfig(user={"client-key-data": B64}), r"has client-key but no client-certificate"),
    "auth provider": (kubeconfig(user={"auth-provider": {"name": "gcp"}}), r"auth-provider was removed.*exec plugin"),
    "exec without command": (kubeconfig(user={"exec": {"apiVersion": "x"}}), r"exec needs a command"),
    "exec v1alpha1": (
        kubeconfig(user={"exec": {**EXEC, "apiVersion": "client.authentication.k8s.io/v1alpha1"}}),
        r"exec.apiVersion is 'client.authentication.k8s.io/v1alpha1'; supported",
    ),
    "exec mode": (kubeconfig(user={"exec": {**EXEC, "interactiveMode": "Maybe"}}), r"use Never, IfAvailable or Always"),
    "groups": (kubeconfig(user={"as": "x", "as-groups": ["g"]}), r"as-groups .* not supported"),
    "missing token file": (kubeconfig(user={"tokenFile": "no"}), r"tokenFile names .*, which does not exist"),
}


@pytest.mark.parametrize(("document", "message"), BROKEN.values(), ids=BROKEN)
def test_whatever_is_wrong_is_one_line_with_file_and_cure(write: Write, document: Any, message: str) -> None:
    path = write(document)
    with pytest.raises(AccessError, match=message) as caught:
        load_access(kubeconfig=path)
    text = str(caught.value)
    assert str(path) in text
    assert "\n" not in text


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(AccessError, match=r"/absent: no such file; name an existing kubeconfig"):
        load_access(kubeconfig=tmp_path / "absent")
    with pytest.raises(AccessError, match=r"/absent: no such file; point \$KUBECONFIG"):
        load_access(environ={"KUBECONFIG": str(tmp_path / "absent")})


def test_a_directory_and_a_binary(tmp_path: Path) -> None:
    with pytest.raises(AccessError, match="cannot be read"):
        load_access(kubeconfig=tmp_path)
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(AccessError, match="not a text file"):
        load_access(kubeconfig=tmp_path / "binary")


FULL = kubeconfig(
    cluster={
        "tls-server-name": "kubernetes",
        "proxy-url": "http://proxy:3128",
        "insecure-skip-tls-verify": False,
        "extensions": [{"name": "client.authentication.k8s.io/exec", "extension": {"audience": "a"}}],
    },
    user={
        "exec": {
            **EXEC,
            "args": ["get-token"],
            "env": [{"name": "E", "value": "v"}],
            "interactiveMode": "Never",
            "provideClusterInfo": True,
            "installHint": "install x",
        },
        "as": "ann",
    },
)
SIMPLE = kubeconfig(user={"token": "t", "as-uid": "u"}, cluster={"certificate-authority-data": B64})
ODD = (None, True, 5, "", "a\nb", "\0", "é ☃", "https://[::", "https://h:port", [], {})
ODDER = ([5], [{}], [{"name": 5}], {"name": 5}, {"x": {}}, ["a", "b"])


def places_of(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in children:
        yield from places_of(child, (*path, key))


def with_odd(value: Any, path: tuple[Any, ...], odd: Any) -> Any:
    if not path:
        return odd
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = with_odd(value[path[0]], path[1:], odd)
    return copy


@pytest.mark.parametrize("document", [FULL, SIMPLE], ids=["full", "simple"])
def test_anything_odd_anywhere_is_understood_or_one_line(document: Any, tmp_path: Path) -> None:
    path = tmp_path / "config"
    for place in places_of(document):
        for odd in (*ODD, *ODDER):
            path.write_text(json.dumps(with_odd(document, place, odd)))
            try:
                Transport(load_access(kubeconfig=path), user_agent="test")
            except AccessError as error:
                assert "\n" not in str(error), (place, odd)
                assert str(path) in str(error), (place, odd)
            except Exception as error:
                raise AssertionError(f"{odd!r} at {'.'.join(map(str, place))}") from error


@pytest.mark.parametrize(
    "text", ["[" * 1000, "a: &a [*a]\n", "- ? {}\n", "current-context: 2026-01-01\n", "? [a]\n: b\n"]
)
def test_yaml_that_nobody_means_is_one_line(text: str, write: Write) -> None:
    with pytest.raises(AccessError) as caught:
        load_access(kubeconfig=write(text))
    assert "\n" not in str(caught.value)

"""Where the cluster is and how to get in: kubeconfig files or the pod's own ServiceAccount."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from fairway.kube.credentials import (
    AccessError,
    Authenticator,
    Certificate,
    Credential,
    CredentialSource,
    ExecPlugin,
    Fixed,
    Pem,
    ServerTrust,
    TokenFile,
    basic,
    bearer,
    decode_base64,
)

SERVICE_ACCOUNT_DIR = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_EXEC_VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")

__all__ = ["AccessError", "ClusterAccess", "load_access"]


@dataclass(frozen=True, slots=True)
class ClusterAccess:
    """Everything a transport needs, checked as far as that is possible without talking to anybody."""

    server: str
    origin: str
    source: CredentialSource
    trust: ServerTrust = field(default_factory=ServerTrust)
    namespace: str = "default"
    server_name: str | None = None
    proxy_url: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)

    def authenticator(self) -> Authenticator:
        return Authenticator(self.source, trust=self.trust, extra_headers=self.headers)


def load_access(
    *,
    kubeconfig: str | os.PathLike[str] | None = None,
    context: str | None = None,
    environ: Mapping[str, str] | None = None,
    service_account_dir: Path = SERVICE_ACCOUNT_DIR,
) -> ClusterAccess:
    """The file given, else $KUBECONFIG, else the pod's ServiceAccount, else ~/.kube/config. Raises AccessError."""
    env = os.environ if environ is None else environ
    if kubeconfig is not None:
        return _from_files([Path(kubeconfig)], context, must_exist=True)
    if env.get("KUBECONFIG"):
        paths = [Path(part) for part in env["KUBECONFIG"].split(os.pathsep) if part]
        return _from_files(paths, context, must_exist=False)
    if context is None and env.get("KUBERNETES_SERVICE_HOST") and (service_account_dir / "token").exists():
        return _in_cluster(env, service_account_dir)
    home = Path(env.get("HOME") or Path.home()) / ".kube" / "config"
    if not home.exists():
        raise AccessError(
            f"no cluster is configured: $KUBECONFIG is not set, {home} does not exist, and this is not a pod; "
            "name a file with --kubeconfig or $KUBECONFIG"
        )
    return _from_files([home], context, must_exist=True)


def _in_cluster(env: Mapping[str, str], directory: Path) -> ClusterAccess:
    host, port = env["KUBERNETES_SERVICE_HOST"], env.get("KUBERNETES_SERVICE_PORT", "443")
    address = f"[{host}]" if ":" in host else host
    namespace_file = directory / "namespace"
    return ClusterAccess(
        server=f"https://{address}:{port}",
        origin=f"the pod's ServiceAccount in {directory}",
        source=TokenFile(directory / "token"),
        trust=ServerTrust(Pem(file=directory / "ca.crt")),
        namespace=namespace_file.read_text("utf-8").strip() if namespace_file.exists() else "default",
    )


@dataclass(frozen=True, slots=True)
class _Entry:
    """A named cluster, user or context, and the file it stands in: paths and messages are relative to that file."""

    file: Path
    section: str
    name: str
    body: Mapping[str, Any]

    def __str__(self) -> str:
        return f"{self.file}: {self.section} {self.name!r}"

    def text(self, key: str) -> str:
        value = self.body.get(key)
        if value is None:
            return ""
        if not isinstance(value, str):
            raise AccessError(f"{self}: {key} must be a text, not {type(value).__name__}")
        return value

    def items(self, body: Mapping[str, Any], key: str) -> list[Any]:
        items = body.get(key)
        if not isinstance(items, list | None):
            raise AccessError(f"{self}: {key} must be a list, not {type(items).__name__}")
        return items or []

    def mappings(self, body: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
        items = self.items(body, key)
        if not all(isinstance(item, dict) for item in items):
            raise AccessError(f"{self}: every entry of {key} must be a mapping")
        return items

    def path(self, key: str) -> Path | None:
        text = self.text(key)
        if not text:
            return None
        path = self.file.parent / Path(text)
        if not path.is_file():
            raise AccessError(f"{self}: {key} names {path}, which does not exist; fix the path or embed {key}-data")
        return path

    def pem(self, key: str) -> Pem | None:
        """Inline data wins over a file, as it does in kubectl."""
        if text := self.text(f"{key}-data"):
            try:
                data = decode_base64(text)
            except ValueError as error:
                raise AccessError(f"{self}: {key}-data {error}; copy the entry again") from None
            if b"-----BEGIN" not in data:
                raise AccessError(f"{self}: {key}-data holds no PEM block; copy the entry again")
            return Pem(data)
        path = self.path(key)
        return Pem(file=path) if path else None


def _from_files(paths: list[Path], wanted: str | None, *, must_exist: bool) -> ClusterAccess:
    documents = [(path, document) for path in paths if (document := _read(path, must_exist=must_exist)) is not None]
    names = " or ".join(map(str, paths))
    if not documents:
        raise AccessError(f"{names}: no such file; point $KUBECONFIG or --kubeconfig at an existing kubeconfig")
    contexts = _entries(documents, "contexts", "context")
    chosen = wanted or next((str(d["current-context"]) for _, d in documents if d.get("current-context")), "")
    known = f"it has {_listed(contexts)}"
    if not chosen:
        raise AccessError(f"{names}: no current-context; choose one with --context ({known})")
    if chosen not in contexts:
        raise AccessError(f"{names}: no context {chosen!r}; {known}; choose one with --context")
    context = contexts[chosen]
    cluster = _follow(context, "cluster", _entries(documents, "clusters", "cluster"))
    users = _entries(documents, "users", "user")
    user = _follow(context, "user", users) if context.text("user") else _Entry(context.file, "user", "", {})
    return _access(context, cluster, user)


def _read(path: Path, *, must_exist: bool) -> Mapping[str, Any] | None:
    import yaml  # in a pod there is no kubeconfig, and this is a tenth of what starting costs

    try:
        document = yaml.safe_load(path.read_text("utf-8"))
    except FileNotFoundError:
        if must_exist:
            raise AccessError(f"{path}: no such file; name an existing kubeconfig with --kubeconfig") from None
        return None
    except OSError as error:
        raise AccessError(f"{path}: cannot be read ({error.strerror}); check its permissions") from None
    except UnicodeDecodeError:
        raise AccessError(f"{path}: is not a text file; name a kubeconfig") from None
    except RecursionError:
        raise AccessError(f"{path}: is nested too deeply to be a kubeconfig") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark else ""
        raise AccessError(
            f"{path}{line}: is not valid YAML ({getattr(error, 'problem', None) or str(error).partition(chr(10))[0]})"
        ) from None
    if document is None:
        return {}
    if not isinstance(document, dict) or document.get("kind", "Config") != "Config":
        raise AccessError(f"{path}: is not a kubeconfig (expected a mapping with kind: Config)")
    return document


def _entries(documents: list[tuple[Path, Mapping[str, Any]]], section: str, key: str) -> dict[str, _Entry]:
    """Entries by name; the first file that has a name wins."""
    found: dict[str, _Entry] = {}
    for file, document in documents:
        items = document.get(section) or []
        if not isinstance(items, list):
            raise AccessError(f"{file}: {section} must be a list")
        for item in items:
            body = item.get(key) if isinstance(item, dict) else None
            if not isinstance(item, dict) or not isinstance(item.get("name"), str) or not isinstance(body or {}, dict):
                raise AccessError(f"{file}: every entry of {section} needs a name and a {key}")
            found.setdefault(item["name"], _Entry(file, key, item["name"], body or {}))
    return found


def _follow(context: _Entry, key: str, entries: Mapping[str, _Entry]) -> _Entry:
    name = context.text(key)
    if not name:
        raise AccessError(f"{context}: has no {key}; add one")
    if name not in entries:
        raise AccessError(f"{context}: refers to {key} {name!r}, which is not there (known: {_listed(entries)})")
    return entries[name]


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(" ".join(name.split()) for name in names)) or "none"


def _access(context: _Entry, cluster: _Entry, user: _Entry) -> ClusterAccess:
    server = cluster.text("server").rstrip("/")
    if not _is_url(server, "https", "http"):
        raise AccessError(f"{cluster}: server is {server!r}; it must be a URL such as https://host:6443")
    proxy = cluster.text("proxy-url") or None
    if proxy and not _is_url(proxy, "http"):
        raise AccessError(f"{cluster}: proxy-url {proxy!r}: only proxies with an http:// URL are supported")
    insecure = bool(cluster.body.get("insecure-skip-tls-verify"))
    certificate_authority = cluster.pem("certificate-authority")
    if insecure and certificate_authority:
        raise AccessError(f"{cluster}: has both a CA and insecure-skip-tls-verify; remove one of them")
    return ClusterAccess(
        server=server,
        origin=f"{context.file}, context {context.name!r}",
        source=_source(user, cluster),
        trust=ServerTrust(certificate_authority, insecure),
        namespace=context.text("namespace") or "default",
        server_name=cluster.text("tls-server-name") or None,
        proxy_url=proxy,
        headers=_impersonation(user),
    )


def _is_url(text: str, *schemes: str) -> bool:
    try:
        url = urlsplit(text)
        return url.scheme in schemes and bool(url.hostname) and url.port != 0 and text.isprintable() and text.isascii()
    except ValueError:
        return False


def _source(user: _Entry, cluster: _Entry) -> CredentialSource:
    cert, key = user.pem("client-certificate"), user.pem("client-key")
    if bool(cert) != bool(key):
        there, missing = ("client-certificate", "client-key") if cert else ("client-key", "client-certificate")
        raise AccessError(f"{user}: has {there} but no {missing}; add it")
    certificate = Certificate(cert, key) if cert and key else None
    if user.body.get("auth-provider"):
        raise AccessError(f"{user}: auth-provider was removed from Kubernetes; use an exec plugin instead")
    if user.body.get("exec"):
        return _exec(user, cluster)
    if token_file := user.path("tokenFile"):
        return TokenFile(token_file, certificate)
    if token := user.text("token"):
        return Fixed(Credential(bearer(token), certificate))
    if name := user.text("username"):
        return Fixed(Credential(basic(name, user.text("password")), certificate))
    return Fixed(Credential(certificate=certificate))


def _exec(user: _Entry, cluster: _Entry) -> ExecPlugin:
    body = user.body["exec"]
    if not isinstance(body, dict) or not isinstance(body.get("command"), str):
        raise AccessError(f"{user}: exec needs a command")
    version = body.get("apiVersion")
    if version not in _EXEC_VERSIONS:
        raise AccessError(f"{user}: exec.apiVersion is {version!r}; supported: {', '.join(_EXEC_VERSIONS)}")
    interactive = body.get("interactiveMode") or "IfAvailable"
    if interactive not in ("Never", "IfAvailable", "Always"):
        raise AccessError(f"{user}: exec.interactiveMode is {interactive!r}; use Never, IfAvailable or Always")
    info: dict[str, Any] | None = None
    if body.get("provideClusterInfo"):
        fields = ("server", "tls-server-name", "insecure-skip-tls-verify", "certificate-authority-data", "proxy-url")
        info = {name: cluster.body[name] for name in fields if cluster.body.get(name)}
        for extension in cluster.mappings(cluster.body, "extensions"):
            if extension.get("name") == "client.authentication.k8s.io/exec":
                info["config"] = extension.get("extension")
    return ExecPlugin(
        api_version=version,
        command=body["command"],
        args=tuple(_argument(user, "exec.args", item) for item in user.items(body, "args")),
        env=dict(_variable(user, item) for item in user.mappings(body, "env")),
        directory=user.file.parent,
        install_hint=str(body.get("installHint") or ""),
        interactive=interactive,
        cluster_info=info,
        origin=str(user),
    )


def _argument(user: _Entry, what: str, value: Any) -> str:
    """What can be handed to a program: any scalar as its text."""
    if not isinstance(value, str | int | float) or "\0" in str(value):
        raise AccessError(f"{user}: {what} must be texts, and one is {value!r}")
    return str(value)


def _variable(user: _Entry, item: Mapping[str, Any]) -> tuple[str, str]:
    name, value = (_argument(user, "exec.env", item.get(key)) for key in ("name", "value"))
    if not name or "=" in name:
        raise AccessError(f"{user}: exec.env has a variable named {name!r}, which no program can have")
    return name, value


def _impersonation(user: _Entry) -> dict[str, str]:
    headers = {}
    if name := user.text("as"):
        headers["Impersonate-User"] = name
    if uid := user.text("as-uid"):
        headers["Impersonate-Uid"] = uid
    if user.body.get("as-groups") or user.body.get("as-user-extra"):
        # These need repeated headers; leaving them out would act with other rights than the file asks for.
        raise AccessError(f"{user}: as-groups and as-user-extra are not supported; remove them or use a token")
    return headers

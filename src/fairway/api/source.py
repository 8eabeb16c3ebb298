"""Where an MCP server comes from: a package, tools in the manifest, a runtime, or something that runs already."""

from typing import Annotated

from pydantic import Field

from fairway.api.container import Arguments, Port
from fairway.api.meta import Key, ObjectName
from fairway.api.policy import FRAMING
from fairway.api.schema import Cel, ListMap, Model

SOURCES = {
    "image": "image",
    "package": "package",
    "inlineTools": "inline_tools",
    "runtime": "runtime",
    "remote": "remote",
    "serviceRef": "service_ref",
    "registryRef": "registry_ref",
}
"""Every source, by its name in a manifest and its attribute."""

Image = Annotated[str, Field(min_length=1, max_length=1024, pattern=r"^\S+$")]
HeaderName = Annotated[str, Field(min_length=1, max_length=256, pattern=r"^[!#$%&'*+.^_`|~0-9A-Za-z-]+$")]
Url = Annotated[str, Field(max_length=2048, pattern=r"^https?://[A-Za-z0-9._:\[\]-]+(/[!-\"$-~]*)?$")]


class SecretKey(Model):
    """One key of a Secret in the same namespace."""

    name: ObjectName
    """Name of the Secret."""
    key: Key
    """Key within the Secret."""


class Package(Model):
    """A package from an index of packages, in one exact version. Fetched before the server starts, never in it."""

    cel_rules = (
        Cel(
            "has(self.pypi) != has(self.npm)",
            "package: set exactly one of pypi and npm",
            lambda package: (package.pypi is None) != (package.npm is None),
        ),
    )

    pypi: (
        Annotated[
            str,
            Field(
                max_length=214,
                pattern=r"^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?(\[[A-Za-z0-9]([A-Za-z0-9._,-]*[A-Za-z0-9])?\])?$",
            ),
        ]
        | None
    ) = None
    """Name of a Python package, with its extras in brackets."""
    npm: (
        Annotated[str, Field(max_length=214, pattern=r"^(@[a-z0-9~][a-z0-9._~-]*/)?[a-z0-9~][a-z0-9._~-]*$")] | None
    ) = None
    """Name of a package for Node, with its scope."""
    version: Annotated[str, Field(max_length=128, pattern=r"^[0-9][0-9A-Za-z.+!_-]*$")]
    """The exact version. Not a range and not `latest`: what runs must not change by itself."""
    args: Arguments | None = None
    """Arguments of the program. `spec.command` names the program where it is not called like its package."""


class InlineTools(Model):
    """Tools written in Python; Fairway runs them in its own server."""

    cel_rules = (
        Cel(
            "has(self.python) != has(self.secretKeyRef)",
            "inlineTools: set exactly one of python and secretKeyRef",
            lambda tools: (tools.python is None) != (tools.secret_key_ref is None),
        ),
    )

    python: Annotated[str, Field(min_length=1, max_length=262144)] | None = None
    """Python source. Every public function becomes a tool; its annotations and docstring become the tool's schema."""
    secret_key_ref: SecretKey | None = None
    """The same, kept in a Secret."""


class NamedRuntime(Model):
    """A kind of server that the operator's catalogue knows by name."""

    name: ObjectName
    """Name of the entry."""
    params: Annotated[str, Field(max_length=262144, pattern=r"^[^\x00]*$")] | None = None
    """Goes into the variable that the entry names for it."""


class RemoteHeader(Model):
    """A header that goes with every request."""

    cel_rules = (
        Cel(
            "has(self.value) != has(self.secretKeyRef)",
            "header: set exactly one of value and secretKeyRef",
            lambda header: (header.value is None) != (header.secret_key_ref is None),
        ),
        Cel(
            f"!(self.name.lowerAscii() in {sorted(FRAMING)})",
            "header: this one belongs to the connection and cannot be set",
            lambda header: header.name.lower() not in FRAMING,
        ),
    )

    name: HeaderName
    """Name of the header."""
    value: Annotated[str, Field(max_length=8192, pattern=r"^[ -~]*$")] | None = None
    """The value. Credentials belong into a Secret."""
    secret_key_ref: SecretKey | None = None
    """Takes the value from a Secret; a new value there is used at once."""


class Remote(Model):
    """A server that somebody else runs. Only the proxy in front of it is ours."""

    cel_rules = (
        Cel(
            "!has(self.headers) "
            "|| self.headers.all(h, self.headers.exists_one(o, o.name.lowerAscii() == h.name.lowerAscii()))",
            "remote.headers: a header is there twice",
            lambda remote: len({h.name.lower() for h in remote.headers or ()}) == len(remote.headers or ()),
        ),
    )

    url: Url
    """Where it speaks MCP."""
    headers: Annotated[list[RemoteHeader], ListMap(("name",)), Field(max_length=32)] | None = None
    """Go with every request, whatever a client sends."""
    allow_private: bool = False
    """Whether the URL may lead to a private address. Without it, only addresses of the public internet are dialled."""


class ServiceReference(Model):
    """A Service that exists already, in the same namespace."""

    name: Annotated[str, Field(min_length=1, max_length=63, pattern=r"^[a-z]([-a-z0-9]*[a-z0-9])?$")]
    """Name of the Service."""
    port: Port
    """The port that the pods behind it listen on."""


class RegistryReference(Model):
    """An entry of an MCPRegistry."""

    registry: ObjectName
    """Name of the MCPRegistry."""
    server: Annotated[str, Field(min_length=1, max_length=256)]
    """Name of the server in it."""
    version: Annotated[str, Field(max_length=128)] | None = None
    """Its version; default: the latest."""


class CaBundle(Model):
    """Certificates of authorities, in PEM, in a ConfigMap of the same namespace."""

    name: ObjectName
    """Name of the ConfigMap."""
    key: Key = "ca.crt"
    """Key within the ConfigMap."""


class UpstreamTls(Model):
    """The proxy dials the server over TLS."""

    ca_bundle_ref: CaBundle | None = None
    """Authorities that the server's certificate may come from; default: those that the system trusts."""
    server_name: Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[A-Za-z0-9._-]+$")] | None = None
    """The name that the certificate must be for; default: the name of the server's Service, or the host of its URL."""

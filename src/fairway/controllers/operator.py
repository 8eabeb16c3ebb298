"""`fairway operator`: the controllers against a cluster."""

import argparse
import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import structlog
import uvloop

import fairway
from fairway.api import names
from fairway.api.exposure import HOST
from fairway.controllers import apiserver
from fairway.controllers.contents import ContentReader
from fairway.controllers.install import NAMESPACE, SETTINGS_DIRECTORY
from fairway.controllers.mcpserver.ask import Asker
from fairway.controllers.mcpserver.metrics import ServerMetrics
from fairway.controllers.pods import ClusterPods
from fairway.controllers.resources import CATALOGUE, CHILDREN, USERS_OBJECTS
from fairway.controllers.settings import Settings
from fairway.controllers.wiring import controllers
from fairway.kube.client import Client
from fairway.kube.config import AccessError, ClusterAccess, load_access
from fairway.kube.credentials import CredentialsFailed
from fairway.kube.errors import KubeError
from fairway.kube.resource import POD
from fairway.kube.transport import Transport
from fairway.runtime.configuration import ArgumentParser, Configuration, Follower, Values, flags_of
from fairway.runtime.endpoints import AddressError
from fairway.runtime.extension import Extension, dotted_names, load_extensions
from fairway.runtime.lease import LeaseTerms
from fairway.runtime.logs import Threshold, configure_logs
from fairway.runtime.manager import Identity, Manager, Options, Tuning, Work
from fairway.runtime.queue import Backoff
from fairway.runtime.setting import (
    BASE_DELAY,
    BURST,
    LEADER_ELECT,
    LOG_FORMAT,
    LOG_LEVEL,
    MAX_DELAY,
    METRICS,
    NAMESPACES,
    PROBES,
    QPS,
    RESYNC,
    RUNTIME_SETTINGS,
    SELECTOR,
    WORKERS,
    InvalidSetting,
    Setting,
    boolean,
    choice,
    whole,
)

OURS = f"{names.LABEL_MANAGED_BY}={names.MANAGED_BY}"
NOT_OURS = f"{names.LABEL_MANAGED_BY}!={names.MANAGED_BY}"
DEFAULT_IMAGE = f"fairway:{fairway.__version__}"
PREFIX = "FAIRWAY"
FILE = Path(SETTINGS_DIRECTORY, "operator.yaml")


def words(text: str) -> tuple[str, ...]:
    return tuple(word for part in text.split(",") if (word := part.strip()))


def user(text: str) -> int | None:
    if text == "platform":
        return None
    if not text.isdecimal() or not 1 <= int(text) <= 2**31 - 1:
        raise ValueError("is neither `platform` nor a user id above 0")
    return int(text)


def url(text: str) -> str:
    parts = urlsplit(text)
    if text and (parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None):
        raise ValueError("is no http or https URL without a user in it")
    return text


def reference(text: str) -> str:
    if text and re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?/[a-z0-9]([-a-z0-9.]*[a-z0-9])?", text) is None:
        raise ValueError("is not NAMESPACE/NAME")
    return text


def name(text: str) -> str:
    if text and re.fullmatch(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?", text) is None:
        raise ValueError("is no name of an object")
    return text


def host(text: str) -> str:
    if text and re.fullmatch(HOST, text) is None:
        raise ValueError("is no host name in lower case")
    return text


IMAGE = Setting("image", str, DEFAULT_IMAGE, "Fairway image for proxies and inline tools", "REF")
PROXY_ROLLOUTS = Setting(
    "proxy-rollouts", whole(least=1), "10", "proxies that take a newer image at once, after an upgrade", "N"
)
PULL_HOST = Setting(
    "pull-host", str, "", "registry to pull servers' images from instead of the one that they name", "HOST"
)
PULL_SECRETS = Setting(
    "pull-secrets",
    words,
    "",
    "Secrets with registry credentials, in each server's namespace, for servers that name none",
    "A,B",
)
PROVISIONED_REGISTRY = Setting(
    "provisioned-registry", str, "", "registry for servers with useProvisionedRegistry", "HOST"
)
PROVISIONED_PULL_SECRET = Setting(
    "provisioned-pull-secret", str, "", "Secret with credentials for it, in each server's namespace", "NAME"
)
PACKAGE_INDEX = Setting("package-index", url, "", "index to fetch Python packages from (default: the usual one)", "URL")
NPM_REGISTRY = Setting("npm-registry", url, "", "registry to fetch packages for Node from", "URL")
PACKAGE_PROXY = Setting("package-proxy", url, "", "HTTP proxy on the way to either", "URL")
PACKAGE_NO_PROXY = Setting("package-no-proxy", str, "", "hosts that are reached without that proxy", "A,B")
PACKAGE_CA = Setting(
    "package-ca",
    str,
    "",
    "ConfigMap whose key ca.crt holds the authorities of the index, in each server's namespace",
    "NAME",
)
NODE_IMAGE = Setting("node-image", str, "", "image with Node and npm, for servers that are npm packages", "REF")
RUNTIMES = Setting(
    "runtimes",
    reference,
    "fairway-system/fairway-runtimes",
    "ConfigMap whose key runtimes.yaml is the catalogue of named runtimes",
    "NAMESPACE/NAME",
)
RUN_AS_USER = Setting(
    "run-as-user",
    user,
    "65532",
    "user of generated pods; `platform` where the platform chooses it, as OpenShift does",
    "UID",
)
REACH_PODS = Setting(
    "reach-pods",
    choice("auto", "direct", "apiserver"),
    "auto",
    "how to ask proxies for their status: dial the pod (direct), or through the API server, which needs pods/proxy "
    "(apiserver); auto is direct in a pod and apiserver elsewhere",
    "WAY",
)
INGRESS_CLASS = Setting("ingress-class", name, "", "ingress class of servers that name none", "NAME")
INGRESS_HOST = Setting(
    "ingress-host", host, "", "host of Ingresses that name neither a host nor a path of their own", "HOST"
)
INGRESS_ENTRYPOINTS = Setting("ingress-entrypoints", str, "web", "Traefik's entry points that Ingresses are for", "A,B")
INGRESS_TLS = Setting(
    "ingress-tls", boolean, "false", "the ingress controller serves TLS, also where an Ingress does not ask for it"
)
INGRESS_READINESS = Setting(
    "ingress-readiness",
    choice("strict", "permissive"),
    "strict",
    "when an Ingress counts as ready: once its controller has published an address (strict), or once it is there",
    "WHEN",
)
GATEWAY = Setting("gateway", reference, "", "Gateway of routes that name none", "NAMESPACE/NAME")
EXTENSIONS = Setting("extensions", dotted_names, "", "hooks and validators to load", "MODULE:NAME,...")
SETTINGS = (
    *RUNTIME_SETTINGS,
    IMAGE,
    PROXY_ROLLOUTS,
    PULL_HOST,
    PULL_SECRETS,
    PROVISIONED_REGISTRY,
    PROVISIONED_PULL_SECRET,
    PACKAGE_INDEX,
    NPM_REGISTRY,
    PACKAGE_PROXY,
    PACKAGE_NO_PROXY,
    PACKAGE_CA,
    NODE_IMAGE,
    RUNTIMES,
    RUN_AS_USER,
    REACH_PODS,
    INGRESS_CLASS,
    INGRESS_HOST,
    INGRESS_ENTRYPOINTS,
    INGRESS_TLS,
    INGRESS_READINESS,
    GATEWAY,
    EXTENSIONS,
)


def parser() -> ArgumentParser:
    made = ArgumentParser(
        prog="fairway operator",
        description="Watches MCPServers and MCPToolConfigs and makes them true. "
        "In a pod it uses the pod's own account; elsewhere the kubeconfig that kubectl would use.",
        epilog=f"A flag wins over its variable, and that over the file, which is YAML with one setting a line, such as "
        f"`{LOG_LEVEL.name}: debug`. Exit codes: 0 after a stop that was asked for, 1 when the Lease was lost, 2 when "
        f"somebody has to change something.",
    )
    made.add_argument("--kubeconfig", metavar="FILE", help="default: $KUBECONFIG, ~/.kube/config, or the pod's account")
    made.add_argument("--context", metavar="NAME", help="context of the kubeconfig (default: its current one)")
    made.add_argument(
        "--config", metavar="FILE", help=f"file with settings (${PREFIX}_CONFIG; default: {FILE}, if there is one)"
    )
    made.add_settings(SETTINGS, prefix=PREFIX)
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """0 after a stop that was asked for, 1 when the lease was lost, 2 when somebody has to change something."""
    given = parser().parse_args(arguments)
    try:
        follower = Follower(_configuration(given, os.environ))
        values = follower.values
        extensions = load_extensions(values[EXTENSIONS])
        way = values[LOG_FORMAT]
        threshold = configure_logs(
            level=values[LOG_LEVEL], human=way == "text" or (way == "auto" and sys.stderr.isatty())
        )
        access = load_access(kubeconfig=given.kubeconfig, context=given.context)
        return uvloop.run(run(access, follower=follower, threshold=threshold, extensions=extensions))
    except (AccessError, AddressError, InvalidSetting, NotUsable) as error:
        print(f"fairway operator: {error}", file=sys.stderr)  # noqa: T201
        return 2


async def run(
    access: ClusterAccess, *, follower: Follower, threshold: Threshold, extensions: Sequence[Extension]
) -> int:
    values = follower.values
    # A pod should go on trying when the cluster is not there yet; a person would not want to wait for that.
    in_pod = "KUBERNETES_SERVICE_HOST" in os.environ
    way = values[REACH_PODS]
    async with Client(Transport(access, user_agent="fairway-operator"), field_manager=names.FIELD_MANAGER) as client:
        if not in_pod:
            await _require(client, access)
        settings = replace(
            settings_of(values),
            api_server=await apiserver.addresses(client, access.server, wait=in_pod),
            cluster_issuer=await apiserver.issuer_of(client),
        )
    operator = Operator(
        access,
        settings=settings,
        options=_options(values, os.environ),
        selector=values[SELECTOR],
        extensions=extensions,
        direct=way == "direct" or (way == "auto" and in_pod),
    )

    def tune(values: Values) -> None:
        threshold.set(values[LOG_LEVEL])
        operator.manager.tune(_tuning(values))

    return await operator.run(follow=lambda: follower.run(tune))


def settings_of(values: Values) -> Settings:
    """What is said about generated objects."""
    return Settings(
        image=values[IMAGE],
        proxy_rollouts=values[PROXY_ROLLOUTS],
        pull_host=values[PULL_HOST],
        pull_secrets=values[PULL_SECRETS],
        provisioned_registry=values[PROVISIONED_REGISTRY],
        provisioned_pull_secret=values[PROVISIONED_PULL_SECRET],
        package_index=values[PACKAGE_INDEX],
        npm_registry=values[NPM_REGISTRY],
        package_proxy=values[PACKAGE_PROXY],
        package_no_proxy=values[PACKAGE_NO_PROXY],
        package_ca=values[PACKAGE_CA],
        node_image=values[NODE_IMAGE],
        runtimes=values[RUNTIMES],
        run_as_user=values[RUN_AS_USER],
        ingress_class=values[INGRESS_CLASS],
        ingress_host=values[INGRESS_HOST],
        ingress_entrypoints=values[INGRESS_ENTRYPOINTS],
        ingress_tls=values[INGRESS_TLS],
        ingress_readiness=values[INGRESS_READINESS],
        gateway=values[GATEWAY],
    )


def _configuration(given: argparse.Namespace, environ: Mapping[str, str]) -> Configuration:
    file = given.config or environ.get(f"{PREFIX}_CONFIG")
    return Configuration(
        SETTINGS,
        flags=flags_of(given, SETTINGS),
        environ=environ,
        prefix=PREFIX,
        file=Path(file) if file else FILE,
        file_must_exist=bool(file),
    )


def _options(values: Values, environ: Mapping[str, str]) -> Options:
    return Options(
        metrics=values[METRICS],
        probes=values[PROBES],
        lease=_lease(environ) if values[LEADER_ELECT] else None,
        namespaces=values[NAMESPACES],
        # pods by the very label that makes a Deployment count them: one without it is replaced
        label_selectors={
            **dict.fromkeys(CHILDREN, OURS),
            USERS_OBJECTS["ConfigMap"]: NOT_OURS,  # Secrets all: of ours it must be known that they are there
            POD: names.LABEL_SERVER,
        },
        tuning=_tuning(values),
    )


def _tuning(values: Values) -> Tuning:
    return Tuning(
        rate=values[QPS],
        burst=values[BURST],
        workers=values[WORKERS],
        backoff=Backoff(base=values[BASE_DELAY], maximum=values[MAX_DELAY]),
        resync=values[RESYNC],
    )


class NotUsable(Exception):
    """The cluster cannot be worked with as it is; the message says what to do."""


class Operator:
    """The controllers and what they need, around one manager."""

    def __init__(
        self,
        access: ClusterAccess,
        *,
        settings: Settings,
        options: Options,
        selector: str,
        extensions: Sequence[Extension],
        direct: bool,
    ) -> None:
        self._access = access
        self._settings = settings
        pods = ClusterPods()
        self._asker = Asker(fetch_status=None if direct else pods.status_through_api_server)
        self._wired = controllers(
            settings=settings,
            ask=self._asker,
            nudge=pods.nudge,
            contents=ContentReader(watched=USERS_OBJECTS, fetch=pods.whole_object),
            selector=selector,
            extensions=extensions,
        )
        identity = Identity(
            name="fairway-operator",
            field_manager=names.FIELD_MANAGER,
            hash_annotation=names.ANNOTATION_APPLIED_HASH,
            metrics_prefix="fairway",
            version=fairway.__version__,
        )
        self.manager = Manager(
            access, controllers=self._wired.all, catalogue=CATALOGUE, identity=identity, options=options
        )
        self.manager.registry.register(ServerMetrics(self.manager.store, self._wired.creation_errors))
        pods.client = self.manager.client

    async def run(self, *, follow: Work) -> int:
        structlog.get_logger("operator").info(
            "starting",
            version=fairway.__version__,
            server=self._access.server,
            image=self._settings.image,
            namespaces=list(self.manager.options.namespaces) or "all",
        )
        try:
            return await self.manager.run(beside={"configuration": follow})
        finally:
            await self._wired.observer.stop()
            await self._asker.aclose()


def _lease(environ: Mapping[str, str]) -> LeaseTerms:
    return LeaseTerms(namespace=environ.get("POD_NAMESPACE", NAMESPACE), name="fairway-operator")


async def _require(client: Client, access: ClusterAccess) -> None:
    """A cluster that answers, and that has our kinds."""
    try:
        answer = await client.fetch(f"/apis/{names.GROUP}/{names.VERSION}", timeout=10.0)
    except CredentialsFailed as error:
        raise NotUsable(f"{access.origin}: {error}") from None
    except KubeError as error:
        raise NotUsable(f"{access.origin}: {error}; is the cluster up, and is this the right context?") from None
    if answer.status == 404:
        raise NotUsable(
            f"{access.origin}: the cluster has no {names.GROUP} kinds yet; run `fairway install --crds-only`"
        )
    if answer.status in (401, 403):
        raise NotUsable(f"{access.origin}: the cluster answered {answer.status}; are the credentials still valid?")

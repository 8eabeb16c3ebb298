"""`fairway operator`: the controllers against a cluster."""

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace

import structlog
import uvloop

import fairway
from fairway.api import names
from fairway.controllers import apiserver
from fairway.controllers.contents import ContentReader
from fairway.controllers.install import NAMESPACE
from fairway.controllers.mcpserver.ask import Asker
from fairway.controllers.pods import ClusterPods
from fairway.controllers.resources import CATALOGUE, CHILDREN, USERS_OBJECTS
from fairway.controllers.settings import Settings
from fairway.controllers.wiring import controllers
from fairway.kube.client import Client
from fairway.kube.config import AccessError, ClusterAccess, load_access
from fairway.kube.errors import KubeError
from fairway.kube.resource import POD
from fairway.runtime.endpoints import Address, AddressError
from fairway.runtime.lease import LeaseTerms
from fairway.runtime.logs import configure_logs
from fairway.runtime.manager import Identity, Manager, Options

OURS = f"{names.LABEL_MANAGED_BY}={names.MANAGED_BY}"
NOT_OURS = f"{names.LABEL_MANAGED_BY}!={names.MANAGED_BY}"
DEFAULT_IMAGE = f"fairway:{fairway.__version__}"


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="fairway operator",
        description="Watches MCPServers and MCPToolConfigs and makes them true. "
        "In a pod it uses the pod's own account; elsewhere the kubeconfig that kubectl would use.",
    )
    made.add_argument("--kubeconfig", metavar="FILE", help="default: $KUBECONFIG, ~/.kube/config, or the pod's account")
    made.add_argument("--context", metavar="NAME", help="context of the kubeconfig (default: its current one)")
    made.add_argument("--namespaces", metavar="A,B", default="", help="watch only these (default: all)")
    made.add_argument(
        "--image",
        metavar="REF",
        default=os.environ.get("FAIRWAY_IMAGE", DEFAULT_IMAGE),
        help="Fairway image for proxies and inline tools (default: $FAIRWAY_IMAGE or %(default)s)",
    )
    made.add_argument(
        "--pull-host",
        metavar="HOST",
        default=os.environ.get("FAIRWAY_PULL_HOST", ""),
        help="registry to pull servers' images from instead of the one that they name",
    )
    made.add_argument(
        "--pull-secrets",
        metavar="A,B",
        default=os.environ.get("FAIRWAY_PULL_SECRETS", ""),
        help="Secrets with registry credentials, in each server's namespace, for servers that name none",
    )
    made.add_argument(
        "--provisioned-registry",
        metavar="HOST",
        default=os.environ.get("FAIRWAY_PROVISIONED_REGISTRY", ""),
        help="registry for servers with useProvisionedRegistry",
    )
    made.add_argument(
        "--provisioned-pull-secret",
        metavar="NAME",
        default=os.environ.get("FAIRWAY_PROVISIONED_PULL_SECRET", ""),
        help="Secret with credentials for it, in each server's namespace",
    )
    made.add_argument(
        "--run-as-user",
        metavar="UID",
        type=_user,
        default=os.environ.get("FAIRWAY_RUN_AS_USER", "65532"),
        help="user of generated pods; `platform` where the platform chooses it, as OpenShift does (%(default)s)",
    )
    made.add_argument(
        "--reach-pods",
        choices=("auto", "direct", "apiserver"),
        default="auto",
        help="how to ask proxies for their status: dial the pod, or through the API server (needs pods/proxy). "
        "auto: direct in a pod, apiserver elsewhere",
    )
    made.add_argument("--leader-elect", action="store_true", help="work only while holding the Lease")
    made.add_argument("--metrics-bind-address", metavar="HOST:PORT", default=":8080", help="0 for none (%(default)s)")
    made.add_argument(
        "--health-probe-bind-address", metavar="HOST:PORT", default=":8081", help="0 for none (%(default)s)"
    )
    made.add_argument("--log-level", choices=("debug", "info", "warning", "error"), default="info")
    made.add_argument("--log-format", choices=("auto", "json", "text"), default="auto", help="auto: text on a terminal")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """0 after a stop that was asked for, 1 when the lease was lost, 2 when somebody has to change something."""
    options = parser().parse_args(arguments)
    human = options.log_format == "text" or (options.log_format == "auto" and sys.stderr.isatty())
    configure_logs(level=options.log_level, human=human)
    try:
        access = load_access(kubeconfig=options.kubeconfig, context=options.context)
        runtime_options = Options(
            metrics=_address(options.metrics_bind_address),
            probes=_address(options.health_probe_bind_address),
            lease=_lease(os.environ) if options.leader_elect else None,
            namespaces=tuple(n for n in options.namespaces.split(",") if n),
            # pods by the very label that makes a Deployment count them: one without it is replaced
            label_selectors={
                **dict.fromkeys(CHILDREN, OURS),
                **dict.fromkeys(USERS_OBJECTS.values(), NOT_OURS),
                POD: names.LABEL_SERVER,
            },
        )
        in_pod = "KUBERNETES_SERVICE_HOST" in os.environ
        direct = options.reach_pods == "direct" or (options.reach_pods == "auto" and in_pod)
        settings = settings_of(options)
        work = run(access, settings=settings, options=runtime_options, direct=direct, wait=in_pod)
        return uvloop.run(work)
    except (AccessError, AddressError, NotUsable) as error:
        print(f"fairway operator: {error}", file=sys.stderr)  # noqa: T201
        return 2


def settings_of(options: argparse.Namespace) -> Settings:
    """What the command line says about generated objects."""
    return Settings(
        image=options.image,
        pull_host=options.pull_host,
        pull_secrets=tuple(name for name in options.pull_secrets.split(",") if name),
        provisioned_registry=options.provisioned_registry,
        provisioned_pull_secret=options.provisioned_pull_secret,
        run_as_user=options.run_as_user,
    )


def _user(text: str) -> int | None:
    if text == "platform":
        return None
    if not text.isdecimal() or not 1 <= int(text) <= 2**31 - 1:
        raise argparse.ArgumentTypeError(f"{text!r} is neither `platform` nor a user id above 0")
    return int(text)


class NotUsable(Exception):
    """The cluster cannot be worked with as it is; the message says what to do."""


async def run(access: ClusterAccess, *, settings: Settings, options: Options, direct: bool, wait: bool) -> int:
    """`wait`: go on trying when the cluster is not there yet, as a pod should and a person would not want."""
    settings = replace(settings, api_server=await apiserver.addresses(access, wait=wait))
    pods = ClusterPods()
    asker = Asker(fetch_status=None if direct else pods.status_through_api_server)
    contents = ContentReader(watched=USERS_OBJECTS, fetch=pods.whole_object)
    wired = controllers(settings=settings, ask=asker, nudge=pods.nudge, contents=contents)
    identity = Identity(
        name="fairway-operator",
        field_manager=names.FIELD_MANAGER,
        hash_annotation=names.ANNOTATION_APPLIED_HASH,
        metrics_prefix="fairway",
        version=fairway.__version__,
    )
    manager = Manager(access, controllers=wired.all, catalogue=CATALOGUE, identity=identity, options=options)
    pods.client = manager.client
    log = structlog.get_logger("operator")
    log.info(
        "starting",
        version=fairway.__version__,
        server=access.server,
        image=settings.image,
        namespaces=list(options.namespaces) or "all",
    )
    try:
        if not wait:
            await _require(manager.client, access)
        return await manager.run()
    finally:
        await wired.observer.stop()
        await asker.aclose()


def _address(text: str) -> Address | None:
    return None if text in ("", "0") else Address.parse(text)


def _lease(environ: Mapping[str, str]) -> LeaseTerms:
    return LeaseTerms(namespace=environ.get("POD_NAMESPACE", NAMESPACE), name="fairway-operator")


async def _require(client: Client, access: ClusterAccess) -> None:
    """A cluster that answers, and that has our kinds."""
    try:
        answer = await client.fetch(f"/apis/{names.GROUP}/{names.VERSION}", timeout=10.0)
    except KubeError as error:
        await client.close()
        raise NotUsable(f"{access.origin}: {error}; is the cluster up, and is this the right context?") from None
    if answer.status == 404:
        await client.close()
        raise NotUsable(
            f"{access.origin}: the cluster has no {names.GROUP} kinds yet; run `fairway install --crds-only`"
        )
    if answer.status in (401, 403):
        await client.close()
        raise NotUsable(f"{access.origin}: the cluster answered {answer.status}; are the credentials still valid?")

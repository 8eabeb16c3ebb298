"""What an operator is told about the place it runs in; an object's own fields win over it."""

from collections.abc import Callable
from dataclasses import dataclass

from fairway.api import names


@dataclass(frozen=True, slots=True)
class ClusterIssuer:
    """Who signs the tokens of ServiceAccounts, and where a proxy finds the keys: at a URL, or in a file."""

    issuer: str
    jwks_url: str = ""
    """To be asked with a pod's own token."""
    jwks_file: str = ""


@dataclass(frozen=True, slots=True)
class Settings:
    """Operator-wide settings that shape the generated objects."""

    image: str
    """The Fairway image: proxy and inline-tools server run from it."""
    image_pull_policy: str = "IfNotPresent"
    proxy_rollouts: int = 10
    """How many proxies at once take a newer image."""
    pull_host: str = ""
    """Registry that images are pulled from instead of the one they name."""
    pull_secrets: tuple[str, ...] = ()
    """Secrets with registry credentials that every namespace is expected to have."""
    provisioned_registry: str = ""
    """Registry that came with the operator, for servers that ask for it."""
    provisioned_pull_secret: str = ""
    """Secret with credentials for it, expected in the server's namespace."""
    api_server: tuple[str, ...] = ()
    """Addresses of the cluster's API server, as networks: kept out of what servers may reach."""
    ingress_class: str = ""
    ingress_host: str = ""
    ingress_entrypoints: str = "web"
    """Of Traefik: which of its entry points an Ingress is for."""
    ingress_tls: bool = False
    ingress_readiness: str = "strict"
    gateway: str = ""
    """namespace/name of the Gateway for routes that name none."""
    package_index: str = ""
    """Index that Python packages are fetched from; the usual one if empty."""
    npm_registry: str = ""
    """Registry that packages for Node are fetched from; the usual one if empty."""
    package_proxy: str = ""
    """HTTP proxy on the way to either."""
    package_no_proxy: str = ""
    """Hosts that are reached without it."""
    package_ca: str = ""
    """ConfigMap with the authorities that their certificates come from, in each server's namespace."""
    package_cache: str = ""
    """Directory that keeps packages, where servers are processes of this machine."""
    node_image: str = ""
    """Image with Node and npm, for packages that need them."""
    runtimes: str = "fairway-system/fairway-runtimes"
    """namespace/name of the ConfigMap that is the catalogue of named runtimes."""
    processes: bool = False
    """Whether pods are processes of one machine: each one container, made by a Deployment."""
    cluster_issuer: ClusterIssuer | None = None
    """For servers whose clients have tokens of the cluster itself."""
    proxy_directory: str = names.FILES_DIR
    """Where a proxy finds its files."""
    shared_proxy: bool = False
    """Whether one proxy serves all servers, so that each needs a directory of its own there."""
    url_here: Callable[[str, str], str] | None = None
    """Where clients reach a server by namespace and name, in a place that has no cluster network."""
    publishes: bool = True
    """Whether this place has nodes, load balancers, ingress controllers and autoscalers at all."""
    run_as_user: int | None = 65532
    """User of generated pods; None where the platform chooses one, as OpenShift does."""

    def proxy_files(self, namespace: str, name: str) -> str:
        """The directory of one server's files, as its proxy sees it."""
        return f"{self.proxy_directory}/{namespace}/{name}" if self.shared_proxy else self.proxy_directory

    def own_url(self, namespace: str, name: str) -> str | None:
        return None if self.url_here is None else self.url_here(namespace, name)

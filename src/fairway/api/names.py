"""The words that other programs may rely on: group, labels, annotations, names of generated objects. Frozen."""

import re
from dataclasses import dataclass

GROUP = "fairway.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
CATEGORY = "fairway"
FIELD_MANAGER = "fairway"

LABEL_SERVER = f"{GROUP}/server"
LABEL_COMPONENT = f"{GROUP}/component"
LABEL_NAME = "app.kubernetes.io/name"
LABEL_INSTANCE = "app.kubernetes.io/instance"
LABEL_MANAGED_BY = "app.kubernetes.io/managed-by"
MANAGED_BY = "fairway"

COMPONENT_SERVER = "server"
COMPONENT_PROXY = "proxy"

ANNOTATION_APPLIED_HASH = f"{GROUP}/applied-hash"
"""On every child: digest of what was last applied, so that a field taken out of the desired object is noticed."""
ANNOTATION_INPUTS_DIGEST = f"{GROUP}/inputs-digest"
"""On pod templates: digest of the inputs that a running container cannot re-read; a change rolls the pods."""
ANNOTATION_RUNCONFIG_HASH = f"{GROUP}/runconfig-hash"
"""On live proxy pods: nudges the kubelet to refresh the mounted RunConfig at once."""

ANNOTATION_IMAGE = f"{GROUP}/image"
"""On a workload: Fairway's own image in its pods. They run on with it when the operator gets a newer one."""
ANNOTATION_TEMPLATE = f"{GROUP}/template-digest"
"""On a workload with that: digest of the template of its pods."""
ANNOTATION_RESTARTED_AT = f"{GROUP}/restarted-at"
"""On an MCPServer, by its user: any new value replaces the server's pods one by one."""

CONTAINER_SERVER = "server"
CONTAINER_PROXY = "proxy"
CONTAINER_FETCH = "fetch"
PORT_MCP = "mcp"
PORT_PROXY = "proxy"
"""Of a sidecar: `mcp` is the server's own port in every pod that has one, so that nothing ever mistakes it."""
PORT_ADMIN = "admin"

FILES_DIR = "/etc/fairway"
"""Where a proxy's pod finds what it is told: a directory for each volume."""
RUNCONFIG_VOLUME = "runconfig"
SECRETS_VOLUME = "secrets"
RUNCONFIG_KEY = "runconfig.json"
RUNCONFIG_DIR = f"{FILES_DIR}/{RUNCONFIG_VOLUME}"
SEAL_KEY = "key"
TLS_CERT = "tls.crt"
TLS_KEY = "tls.key"
CLUSTER_CA = "cluster/ca.crt"
CLUSTER_TOKEN = "cluster/token"  # noqa: S105  a file name
TOOLS_KEY = "tools.py"
TOOLS_DIR = "/etc/fairway/tools"
PACKAGE_DIR = "/package"
PACKAGE_CA_DIR = "/etc/fairway/package-ca"
CONFIG_KEY = "config.json"
CONFIG_DIR = "/etc/mcp"

SERVICE_PORT = 8080
PROXY_PORT = 8080
SIDECAR_PORT = 8091
ADMIN_PORT = 8081
MCP_PATH = "/mcp"

MAX_SERVER_NAME = 52
"""Longest MCPServer name: the pods' revision label and the longest child name must stay within 63 characters."""

_DNS_LABEL = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")


def is_server_name(name: str) -> bool:
    """Whether Services, pods and labels can carry this name."""
    return len(name) <= MAX_SERVER_NAME and _DNS_LABEL.fullmatch(name) is not None


@dataclass(frozen=True, slots=True)
class ChildNames:
    """What the objects generated for one MCPServer are called."""

    server: str

    @property
    def workload(self) -> str:
        return self.server

    @property
    def service(self) -> str:
        return self.server

    @property
    def endpoints_service(self) -> str:
        return f"{self.server}-endpoints"

    @property
    def proxy(self) -> str:
        return f"{self.server}-proxy"

    @property
    def runconfig(self) -> str:
        return f"{self.server}-runconfig"

    @property
    def seal(self) -> str:
        """The Secret with the key of session ids: made once, and never written again."""
        return f"{self.server}-seal"

    @property
    def tools(self) -> str:
        return f"{self.server}-tools"

    @property
    def config(self) -> str:
        return f"{self.server}-config"

    @property
    def network_policy(self) -> str:
        return self.server

    def url(self, namespace: str, *, port: int = SERVICE_PORT, path: str = MCP_PATH) -> str:
        return f"http://{self.service}.{namespace}.svc.cluster.local:{port}{path}"


def labels(server: str, component: str) -> dict[str, str]:
    """Labels of every generated object."""
    return {
        LABEL_NAME: "mcp-proxy" if component == COMPONENT_PROXY else "mcp-server",
        LABEL_INSTANCE: server,
        LABEL_MANAGED_BY: MANAGED_BY,
        LABEL_SERVER: server,
        LABEL_COMPONENT: component,
    }


def selector(server: str, component: str) -> dict[str, str]:
    """The labels that pick the pods of one component: never changed, since a Deployment's selector is immutable."""
    return {LABEL_SERVER: server, LABEL_COMPONENT: component}

"""Kubernetes resource kinds, their URLs, and references to single objects."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self
from urllib.parse import quote

Obj = dict[str, Any]
"""A Kubernetes object as decoded JSON. Objects read from a store are shared: never change one in place."""


@dataclass(frozen=True, slots=True)
class Resource:
    """One kind as the API serves it: enough to build every URL and to stamp apiVersion and kind."""

    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool = True
    metadata_only: bool = False
    """A view of a kind without its content: a resource of its own in a store, beside what is held of it as a whole."""

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def base(self) -> str:
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"

    def path(self, namespace: str | None = None, name: str | None = None, subresource: str | None = None) -> str:
        """The URL path of a collection (no name) or of one object; a collection without namespace spans all of them."""
        if self.namespaced and name is not None and not namespace:
            raise ValueError(f"{self.kind} {name!r} lives in a namespace, and none was given")
        where = f"/namespaces/{segment(namespace)}" if self.namespaced and namespace else ""
        which = f"/{segment(name)}" if name is not None else ""
        part = f"/{subresource}" if subresource else ""
        return f"{self.base}{where}/{self.plural}{which}{part}"

    @property
    def metadata(self) -> Self:
        """The same kind, without content."""
        return replace(self, metadata_only=True)

    def ref(self, namespace: str | None, name: str) -> "ObjectRef":
        return ObjectRef(self, (namespace or "") if self.namespaced else "", name)

    def __str__(self) -> str:
        name = f"{self.plural}.{self.group}" if self.group else self.plural
        return f"{name}/metadata" if self.metadata_only else name


@dataclass(frozen=True, slots=True)
class ObjectRef:
    """Names one object. `namespace` is empty for cluster-scoped kinds."""

    resource: Resource
    namespace: str
    name: str

    @property
    def path(self) -> str:
        return self.resource.path(self.namespace or None, self.name)

    def __str__(self) -> str:
        return f"{self.resource.kind}/{self.name}"


class UnknownResource(LookupError):
    """An object of a kind that nobody declared: a bug of the caller, who must list it in its catalogue."""


class Catalogue(Mapping[tuple[str, str], Resource]):
    """The resources that a program knows, by (apiVersion, kind)."""

    def __init__(self, resources: Iterable[Resource] = ()) -> None:
        self._known = {(resource.api_version, resource.kind): resource for resource in resources}

    def __getitem__(self, key: tuple[str, str]) -> Resource:
        return self._known[key]

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)

    def plus(self, resources: Iterable[Resource]) -> Self:
        return type(self)([*self._known.values(), *resources])

    def of(self, obj: Mapping[str, Any]) -> Resource:
        api_version, kind = obj.get("apiVersion"), obj.get("kind")
        resource = self._known.get((api_version, kind)) if isinstance(api_version, str) and kind else None
        if resource is None:
            raise UnknownResource(f"no resource is known for apiVersion {api_version!r}, kind {kind!r}")
        return resource

    def ref(self, obj: Mapping[str, Any], *, default_namespace: str = "") -> ObjectRef:
        metadata = obj["metadata"]
        return self.of(obj).ref(metadata.get("namespace") or default_namespace, metadata["name"])


def segment(text: str | None) -> str:
    """One URL path segment. Names come from users, so nothing in them may climb out of the path."""
    if not text or text in (".", ".."):
        raise ValueError(f"{text!r} is no name of a Kubernetes object")
    return quote(text, safe=":@!$&'()*+,;=~")


CONFIG_MAP = Resource("", "v1", "ConfigMap", "configmaps")
POD = Resource("", "v1", "Pod", "pods")
SECRET = Resource("", "v1", "Secret", "secrets")
SERVICE = Resource("", "v1", "Service", "services")
SERVICE_ACCOUNT = Resource("", "v1", "ServiceAccount", "serviceaccounts")
NAMESPACE = Resource("", "v1", "Namespace", "namespaces", namespaced=False)
NODE = Resource("", "v1", "Node", "nodes", namespaced=False)
PERSISTENT_VOLUME_CLAIM = Resource("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims")
EVENT = Resource("events.k8s.io", "v1", "Event", "events")
DEPLOYMENT = Resource("apps", "v1", "Deployment", "deployments")
STATEFUL_SET = Resource("apps", "v1", "StatefulSet", "statefulsets")
REPLICA_SET = Resource("apps", "v1", "ReplicaSet", "replicasets")
HORIZONTAL_POD_AUTOSCALER = Resource("autoscaling", "v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers")
POD_DISRUPTION_BUDGET = Resource("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets")
INGRESS = Resource("networking.k8s.io", "v1", "Ingress", "ingresses")
NETWORK_POLICY = Resource("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies")
ENDPOINT_SLICE = Resource("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices")
ROLE = Resource("rbac.authorization.k8s.io", "v1", "Role", "roles")
ROLE_BINDING = Resource("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings")
CLUSTER_ROLE = Resource("rbac.authorization.k8s.io", "v1", "ClusterRole", "clusterroles", namespaced=False)
CLUSTER_ROLE_BINDING = Resource(
    "rbac.authorization.k8s.io", "v1", "ClusterRoleBinding", "clusterrolebindings", namespaced=False
)
LEASE = Resource("coordination.k8s.io", "v1", "Lease", "leases")
CRD = Resource("apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions", namespaced=False)
HTTP_ROUTE = Resource("gateway.networking.k8s.io", "v1", "HTTPRoute", "httproutes")
SERVICE_MONITOR = Resource("monitoring.coreos.com", "v1", "ServiceMonitor", "servicemonitors")

WELL_KNOWN = Catalogue(
    (
        CONFIG_MAP, POD, SECRET, SERVICE, SERVICE_ACCOUNT, NAMESPACE, NODE, PERSISTENT_VOLUME_CLAIM, EVENT, DEPLOYMENT,
        STATEFUL_SET, REPLICA_SET, HORIZONTAL_POD_AUTOSCALER, POD_DISRUPTION_BUDGET, INGRESS, NETWORK_POLICY,
        ENDPOINT_SLICE, ROLE, ROLE_BINDING, CLUSTER_ROLE, CLUSTER_ROLE_BINDING, LEASE, CRD, HTTP_ROUTE,
    )
)  # fmt: skip

"""Every leaf of the spec of our kinds, servers that have each of them, and values that it should bear or refuse."""

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from fairway.api.crd import crds

Path = tuple[str, ...]
ITEM, VALUE = "[]", "*"
"""Steps into any item of a list, and any value of a map."""


def schema(kind: str = "MCPServer") -> dict[str, Any]:
    for document in crds().values():
        if document["spec"]["names"]["kind"] == kind:
            found: dict[str, Any] = document["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
            return found
    raise LookupError(kind)


def leaves(node: dict[str, Any], path: Path = ()) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Every place that holds a single value, or something that the schema says no more of."""
    if node.get("properties"):
        for name, part in node["properties"].items():
            yield from leaves(part, (*path, name))
    elif "items" in node and (node["items"].get("properties") or node["items"].get("type") == "string"):
        yield from leaves(node["items"], (*path, ITEM))
    elif isinstance(node.get("additionalProperties"), dict):
        yield from leaves(node["additionalProperties"], (*path, VALUE))
    else:
        yield path, node


def places(value: Any, path: Path) -> Iterator[tuple[Any, Any]]:
    """Where a spec has this leaf: what holds it, and under which key or index."""
    if not path:
        return
    step, rest = path[0], path[1:]
    if step == ITEM:
        keys: Any = range(len(value)) if isinstance(value, list) else ()
    elif step == VALUE:
        keys = list(value) if isinstance(value, dict) else ()
    else:
        keys = [step] if isinstance(value, dict) and step in value else ()
    for key in keys:
        if rest:
            yield from places(value[key], rest)
        else:
            yield value, key


@dataclass(frozen=True)
class Case:
    """A server with one leaf that is not as it should be."""

    path: Path
    what: str
    spec: dict[str, Any]
    host: dict[str, Any]

    @property
    def name(self) -> str:
        return f"{'.'.join(self.path)}={self.what}"


def cases() -> Iterator[Case]:
    for path, node in leaves(schema()):
        host = next((host for host in HOSTS if any(places(host, path))), None)
        assert host is not None, f"no server in HOSTS has {'.'.join(path)}: add it to one"
        for what, value in values(node):
            spec = copy.deepcopy(host)
            holder, key = next(places(spec, path))
            holder[key] = value
            yield Case(path, what, spec, host)


def values(node: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Another value of the same type, nothing, far too much, and what no keyboard has."""
    kind = node.get("type")
    if node.get("x-kubernetes-int-or-string"):
        yield from (("other", "3"), ("empty", ""), ("huge", "9" * 70), ("unicode", "３Mi"), ("negative", -1))
    elif kind == "boolean":
        yield from (("other", not node.get("default", False)), ("text", "yes"))
    elif kind in ("integer", "number"):
        yield from (("other", 1), ("zero", 0), ("negative", -1), ("huge", 2**62), ("text", "1"))
    elif kind == "string" and "enum" in node:
        yield from (("other", node["enum"][-1]), ("empty", ""), ("unicode", "ｎｏｎｅ"))
    elif kind == "string":
        longest = min(node.get("maxLength", 10_000), 10_000)
        yield from (("other", "x"), ("empty", ""), ("huge", "x" * longest), ("unicode", "ж\u202e🦊"), ("number", "-1"))
        yield "too long", "x" * (longest + 1)
    else:
        yield from (("empty", {}), ("text", "x"), ("unicode", {"ж": "🦊"}), ("list", []))


_KEY = {"name": "held", "key": "key"}
_CONTAINER = {
    "imageTag": "1",
    "registryOverride": "registry.example.com/team",
    "useProvisionedRegistry": False,
    "imagePullPolicy": "IfNotPresent",
    "imagePullSecrets": ["pull"],
    "transport": "streamable-http",
    "port": 3000,
    "path": "/mcp",
    "command": ["/bin/serve"],
    "args": ["--verbose"],
    "env": [
        {"name": "A", "value": "a"},
        {"name": "B", "valueFrom": {"secretKeyRef": {**_KEY, "optional": True}}},
        {"name": "C", "valueFrom": {"configMapKeyRef": {**_KEY, "optional": True}}},
        {"name": "D", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
    ],
    "envFrom": [
        {"prefix": "P_", "secretRef": {"name": "held", "optional": True}},
        {"configMapRef": {"name": "held", "optional": True}},
    ],
    "secretName": "held",
    "config": {"LEVEL": "debug"},
    "resources": {"requests": {"cpu": "10m"}, "limits": {"memory": "64Mi"}},
    "volumes": [
        {"name": "a", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}},
        {
            "name": "b",
            "configMap": {
                "name": "held",
                "items": [{"key": "key", "path": "p", "mode": 256}],
                "defaultMode": 256,
                "optional": True,
            },
        },
        {
            "name": "c",
            "secret": {
                "secretName": "held",
                "items": [{"key": "key", "path": "p", "mode": 256}],
                "defaultMode": 256,
                "optional": True,
            },
        },
        {"name": "d", "persistentVolumeClaim": {"claimName": "data", "readOnly": True}},
        {"name": "e", "hostPath": {"path": "/data", "type": "Directory"}},
    ],
    "volumeMounts": [
        {"name": "a", "mountPath": "/a", "readOnly": True, "subPath": "s"},
        {"name": "d", "mountPath": "/d", "subPathExpr": "$(A)"},
    ],
    "securityContext": {
        "runAsUser": 1000,
        "runAsGroup": 1000,
        "runAsNonRoot": True,
        "readOnlyRootFilesystem": True,
        "allowPrivilegeEscalation": False,
        "privileged": False,
        "capabilities": {"add": ["NET_BIND_SERVICE"], "drop": ["ALL"]},
        "seccompProfile": {"type": "Localhost", "localhostProfile": "p.json"},
        "seLinuxOptions": {"user": "u", "role": "r", "type": "t", "level": "s0"},
    },
    "serviceAccountName": "account",
    "podTemplate": {"metadata": {"labels": {"a": "b"}, "annotations": {"a": "b"}}, "spec": {"priorityClassName": "x"}},
}
_FRONT = {
    "permissionProfile": {"type": "configMap", "name": "held", "key": "key"},
    "replicas": 2,
    "suspend": False,
    "workload": "Deployment",
    "proxy": {
        "mode": "standalone",
        "replicas": 2,
        "port": 8090,
        "resources": {"requests": {"cpu": "10m"}, "limits": {"memory": "64Mi"}},
        "proxyMode": "streamable-http",
    },
    "autoscaling": {
        "minReplicas": 1,
        "maxReplicas": 3,
        "targetCPUUtilization": 50,
        "targetMemoryUtilization": 60,
        "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization"}}}],
        "behavior": {"scaleDown": {"stabilizationWindowSeconds": 60}},
    },
    "service": {
        "type": "ClusterIP",
        "port": 8080,
        "extraPorts": [80],
        "sessionAffinity": "ClientIP",
        "annotations": {"a": "b"},
    },
    "ingress": {
        "enabled": True,
        "className": "nginx",
        "host": "mcp.example.com",
        "path": "/x",
        "publicPathPrefix": "y",
        "readiness": "permissive",
        "annotations": {"a": "b"},
        "tls": {"secretName": "tls"},
    },
    "gatewayRoute": {
        "enabled": True,
        "parentRefs": [{"name": "gw", "namespace": "infra", "sectionName": "web", "port": 80}],
        "hostnames": ["mcp.example.com"],
        "path": "/x",
        "timeout": "60s",
    },
    "toolConfigRef": {"name": "few"},
}
_RULES = {
    "auth": {
        "anonymous": True,
        "resourceUrl": "https://mcp.example.com/mcp",
        "requiredScopes": ["mcp"],
        "scopesSupported": ["mcp"],
        "authorizationServers": ["https://idp.example.com"],
        "oidc": {
            "type": "inline",
            "inline": {
                "issuer": "https://idp.example.com",
                "audiences": ["mcp"],
                "jwksUrl": "https://idp.example.com/keys",
                "caBundleRef": {"name": "held", "key": "key"},
                "algorithms": ["RS256"],
                "subjectClaim": "sub",
                "groupsClaim": "groups",
                "prefix": "idp:",
                "allowPrivateAddresses": True,
                "allowHTTP": True,
            },
        },
    },
    "authz": {"cedar": {"policies": ["permit(principal, action, resource);"], "entities": "[]"}},
    "rateLimit": {
        "shared": {"requests": 100, "per": "60s"},
        "perClient": {"requests": 10, "per": "60s"},
        "tools": [
            {"name": "a", "shared": {"requests": 1, "per": "1s"}, "perClient": {"requests": 1, "per": "1s"}},
        ],
    },
    "audit": {"enabled": True, "arguments": True, "redact": ["password"]},
    "cors": {"allowedOrigins": ["https://a.example"], "allowedHosts": ["a.example"], "maxAge": "1h"},
    "headers": {
        "set": [
            {"name": "X-A", "value": "a"},
            {"name": "X-B", "prefix": "Bearer ", "valueFrom": {"secretKeyRef": _KEY}},
        ],
        "forward": ["X-C"],
    },
    "timeouts": {"connect": "5s", "call": "60s", "idle": "60s"},
    "limits": {"maxBody": "1Mi"},
    "upstreamHost": "localhost",
}
_INLINE = {"inlineTools": {"python": "def a() -> int:\n    return 1\n"}}
_TIMES = {
    "initialDelaySeconds": 1,
    "periodSeconds": 5,
    "timeoutSeconds": 1,
    "successThreshold": 1,
    "failureThreshold": 3,
}
_HANDLERS: tuple[dict[str, Any], ...] = (
    {"httpGet": {"path": "/health", "port": 8080, "scheme": "HTTP"}},
    {"tcpSocket": {"port": 8080}},
    {"exec": {"command": ["true"]}},
    {"grpc": {"port": 8080, "service": "s"}},
)
HOSTS: tuple[dict[str, Any], ...] = (
    {"image": "registry.example.com/w", **_CONTAINER, **_FRONT, **_RULES},
    {**_INLINE, "proxy": {"tls": {"secretName": "tls"}}},
    {"inlineTools": {"secretKeyRef": _KEY}},
    {"image": "w:1", "upstreamTLS": {"caBundleRef": {"name": "held", "key": "key"}, "serverName": "w.example"}},
    {"package": {"pypi": "mcp-server-time", "version": "1.0", "args": ["--utc"]}},
    {"package": {"npm": "@a/b", "version": "1.0"}},
    {"runtime": {"name": "python", "params": "x"}},
    {"registryRef": {"registry": "company", "server": "io.github.acme/weather", "version": "1"}},
    {
        "remote": {
            "url": "https://mcp.example.com/mcp",
            "allowPrivate": True,
            "headers": [{"name": "A", "value": "b"}, {"name": "B", "secretKeyRef": _KEY}],
        }
    },
    {"serviceRef": {"name": "there", "port": 8080}},
    {**_INLINE, "auth": {"oidc": {"type": "configMap", "configMap": _KEY}}},
    {**_INLINE, "authz": {"cedar": {"configMapRef": _KEY}}},
    {
        **_INLINE,
        "auth": {"oidc": {"type": "kubernetes", "kubernetes": {"audiences": ["a"], "issuer": "https://k.example"}}},
    },
    {
        **_INLINE,
        "auth": {"oidc": {"type": "inline", "inline": {"issuer": "https://i.example", "jwks": '{"keys": []}'}}},
    },
    {
        **_INLINE,
        "auth": {"oidc": {"type": "inline", "inline": {"issuer": "https://i.example", "sharedSecretRef": _KEY}}},
    },
    *(
        {"image": "w:1", "probes": {probe: {**handler, **_TIMES} for probe in ("liveness", "readiness", "startup")}}
        for handler in _HANDLERS
    ),
)
"""Between them they have every field of the spec."""

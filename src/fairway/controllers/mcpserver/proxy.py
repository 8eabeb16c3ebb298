"""What stands in front of an MCP server: the proxy's RunConfig, Deployment, and its right to look up endpoints."""

import base64
from typing import Final

from fairway.api import defaults, names, runconfig
from fairway.controllers.mcpserver import children, publishing, rules, shape, upstream
from fairway.controllers.mcpserver.children import Object, child_names
from fairway.controllers.mcpserver.container import resources
from fairway.controllers.mcpserver.inputs import NO_RULES, Inputs
from fairway.controllers.mcptoolconfig.view import tools_of
from fairway.controllers.settings import Settings

PROXY = names.COMPONENT_PROXY


def route(inputs: Inputs) -> runconfig.Route:
    """The one route of this server's proxies."""
    assert inputs.rules is not None, "a proxy whose rules nobody knows stays as it is"
    server = inputs.server
    return runconfig.Route(
        name=f"{server.metadata.namespace}/{server.metadata.name}",
        listen=_listen(inputs),
        upstream=upstream.upstream(inputs),
        tools=runconfig.ALL_TOOLS if inputs.tool_config is None else tools_of(inputs.tool_config.spec),
        policy=inputs.rules.policy,
        **rules.bounds_of(server.spec),
    )


def _listen(inputs: Inputs) -> runconfig.Listen:
    port, also = inputs.proxy_port, publishing.paths(inputs)
    tls = inputs.rules.listen_tls if inputs.rules is not None else None
    if inputs.presented == "sse":
        return runconfig.Listen(port=port, path=inputs.client_path, also=also, mode="sse", tls=tls)
    # what is the contract's own default is left out, so that no hash changes
    return runconfig.Listen(port=port, also=also, tls=tls)


def runconfig_map(inputs: Inputs) -> Object:
    config = runconfig.RunConfig(version=1, routes=(route(inputs),))
    texts = inputs.rules.texts if inputs.rules is not None else {}
    data = {names.RUNCONFIG_KEY: runconfig.encode(config).decode(), **texts}
    return children.config_map(inputs, shape.runconfig_name(inputs), PROXY, data)


def service_account(inputs: Inputs) -> Object:
    return children.service_account(inputs, child_names(inputs).proxy, PROXY)


def role(inputs: Inputs, *, old_proxies: bool = False) -> Object:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": children.metadata(inputs, child_names(inputs).proxy, PROXY),
        "rules": upstream.all_rights(inputs) if old_proxies else upstream.rights(inputs),
    }


def role_binding(inputs: Inputs) -> Object:
    name = child_names(inputs).proxy
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": children.metadata(inputs, name, PROXY),
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": inputs.server.metadata.namespace}],
    }


def container(inputs: Inputs, settings: Settings) -> Object:
    """The proxy's own container, in a pod of its own or in the server's."""
    port = names.PORT_PROXY if shape.sidecar(inputs) else names.PORT_MCP
    return {
        "name": names.CONTAINER_PROXY,
        "image": settings.image,
        "imagePullPolicy": settings.image_pull_policy,
        "args": _role(inputs),
        "env": [{"name": "HOME", "value": "/tmp"}],  # noqa: S108
        "ports": [
            {"name": port, "containerPort": inputs.proxy_port, "protocol": "TCP"},
            {"name": names.PORT_ADMIN, "containerPort": names.ADMIN_PORT, "protocol": "TCP"},
        ],
        "readinessProbe": {
            "httpGet": {"path": "/readyz", "port": names.PORT_ADMIN, "scheme": "HTTP"},
            "periodSeconds": 1,
            "timeoutSeconds": 1,
            "failureThreshold": 3,
        },
        # where many pods start at once it takes a minute, and killing it then makes the crowd worse
        "startupProbe": {
            "httpGet": {"path": "/healthz", "port": names.PORT_ADMIN, "scheme": "HTTP"},
            "periodSeconds": 1,
            "timeoutSeconds": 1,
            "failureThreshold": 300,
        },
        "livenessProbe": {
            "httpGet": {"path": "/healthz", "port": names.PORT_ADMIN, "scheme": "HTTP"},
            "periodSeconds": 10,
            "timeoutSeconds": 5,
            "failureThreshold": 3,
        },
        "resources": resources(inputs.server.spec.proxy.resources, defaults.PROXY_REQUESTS, defaults.PROXY_LIMITS),
        "volumeMounts": _mounts(inputs, settings),
    }


def _role(inputs: Inputs) -> list[str]:
    """A proxy that has nothing to ask the API server for gets no token, and must not look for one."""
    if upstream.rights(inputs):
        return ["proxyrunner", "run"]
    return ["proxy", "--config", names.RUNCONFIG_DIR, "--admin", f"0.0.0.0:{names.ADMIN_PORT}"]


def volumes(inputs: Inputs) -> list[Object]:
    """What a proxy is told, and the secrets that it reads."""
    enforced = inputs.rules or NO_RULES
    sealed = (child_names(inputs).seal, names.SEAL_KEY, False)
    # a proxy without a user's Secret refuses what needs it, and takes it up when it comes
    credentials = [(name, key, True) for name, key in enforced.secrets]
    secrets = children.secrets_volume(names.SECRETS_VOLUME, [sealed, *credentials])
    if enforced.cluster_token:
        secrets["projected"]["sources"] += _CLUSTER_TOKEN
    return [children.config_volume(names.RUNCONFIG_VOLUME, shape.runconfig_name(inputs)), secrets]


_CLUSTER_TOKEN: Final = [
    {"serviceAccountToken": {"path": names.CLUSTER_TOKEN, "expirationSeconds": 3600}},
    {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": names.CLUSTER_CA}]}},
]
"""What shows the API server that a pod of the cluster asks for its keys. It is good for nothing else."""


def _mounts(inputs: Inputs, settings: Settings) -> list[Object]:
    metadata = inputs.server.metadata
    root = settings.proxy_files(metadata.namespace, metadata.name)
    return [
        {"name": volume, "mountPath": f"{root}/{volume}", "readOnly": True}
        for volume in (names.RUNCONFIG_VOLUME, names.SECRETS_VOLUME)
    ]


def seal(inputs: Inputs, key: bytes) -> Object:
    """The Secret that all replicas seal session ids with. To be made once: another key ends all sessions."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": children.metadata(inputs, child_names(inputs).seal, PROXY),
        "type": "Opaque",
        "data": {names.SEAL_KEY: base64.b64encode(key).decode()},
    }


def deployment(inputs: Inputs, settings: Settings) -> Object:
    name = child_names(inputs).proxy
    pod = children.pod_spec(
        settings,
        account=name,
        container=container(inputs, settings),
        volumes=volumes(inputs),
        token=bool(upstream.rights(inputs)),
    )
    return children.deployment(inputs, name, PROXY, replicas=shape.proxy_replicas(inputs), pod=pod)

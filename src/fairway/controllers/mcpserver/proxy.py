"""What stands in front of an MCP server: the proxy's RunConfig, Deployment, and its right to look up endpoints."""

from fairway.api import defaults, names, runconfig
from fairway.controllers.mcpserver import children, publishing, shape, upstream
from fairway.controllers.mcpserver.children import Object, child_names
from fairway.controllers.mcpserver.container import resources
from fairway.controllers.mcpserver.inputs import Inputs
from fairway.controllers.mcptoolconfig.view import tools_of
from fairway.controllers.settings import Settings

PROXY = names.COMPONENT_PROXY


def route(inputs: Inputs) -> runconfig.Route:
    """The one route of this server's proxies."""
    server = inputs.server
    return runconfig.Route(
        name=f"{server.metadata.namespace}/{server.metadata.name}",
        listen=_listen(inputs),
        upstream=upstream.upstream(inputs),
        tools=runconfig.ALL_TOOLS if inputs.tool_config is None else tools_of(inputs.tool_config.spec),
    )


def _listen(inputs: Inputs) -> runconfig.Listen:
    port, also = inputs.proxy_port, publishing.paths(inputs)
    if inputs.presented == "sse":
        return runconfig.Listen(port=port, path=inputs.client_path, also=also, mode="sse")
    # what is the contract's own default is left out, so that no hash changes
    return runconfig.Listen(port=port, also=also)


def runconfig_map(inputs: Inputs) -> Object:
    config = runconfig.RunConfig(version=1, routes=(route(inputs),))
    data = {names.RUNCONFIG_KEY: runconfig.encode(config).decode()}
    return children.config_map(inputs, child_names(inputs).runconfig, PROXY, data)


def service_account(inputs: Inputs) -> Object:
    return children.service_account(inputs, child_names(inputs).proxy, PROXY)


def role(inputs: Inputs) -> Object:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": children.metadata(inputs, child_names(inputs).proxy, PROXY),
        "rules": upstream.rights(inputs),
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
        "volumeMounts": [{"name": "runconfig", "mountPath": names.RUNCONFIG_DIR, "readOnly": True}],
    }


def _role(inputs: Inputs) -> list[str]:
    """A proxy that has nothing to ask the API server for gets no token, and must not look for one."""
    if upstream.rights(inputs):
        return ["proxyrunner", "run"]
    return ["proxy", "--config", names.RUNCONFIG_DIR, "--admin", f"0.0.0.0:{names.ADMIN_PORT}"]


def volumes(inputs: Inputs) -> list[Object]:
    """What a proxy is told."""
    return [children.config_volume("runconfig", child_names(inputs).runconfig)]


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

"""What stands in front of an MCP server: the proxy's RunConfig, Deployment, and its right to look up endpoints."""

from fairway.api import defaults, names, runconfig
from fairway.controllers.mcpserver import children, publishing
from fairway.controllers.mcpserver.children import Object, child_names
from fairway.controllers.mcpserver.container import resources
from fairway.controllers.mcpserver.inputs import Inputs
from fairway.controllers.mcptoolconfig.view import tools_of
from fairway.controllers.settings import Settings

PROXY = names.COMPONENT_PROXY


def route(inputs: Inputs) -> runconfig.Route:
    """The one route of a standalone proxy."""
    server = inputs.server
    return runconfig.Route(
        name=f"{server.metadata.namespace}/{server.metadata.name}",
        listen=runconfig.Listen(port=inputs.proxy_port, also=publishing.paths(inputs)),
        upstream=runconfig.Upstream(
            transport="streamable-http",
            service=runconfig.ServiceEndpoints(
                namespace=server.metadata.namespace,
                name=child_names(inputs).endpoints_service,
                port=server.spec.port,
            ),
            path=_path(inputs),
        ),
        tools=runconfig.ALL_TOOLS if inputs.tool_config is None else tools_of(inputs.tool_config.spec),
    )


def _path(inputs: Inputs) -> str:
    path = inputs.path
    # the very object, so that it is left out where it is the contract's own default, and no hash changes
    return runconfig.DEFAULT_PATH if path == runconfig.DEFAULT_PATH else path


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
        "rules": [
            {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["get", "list", "watch"]}
        ],
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


def deployment(inputs: Inputs, settings: Settings) -> Object:
    name = child_names(inputs).proxy
    container = {
        "name": names.CONTAINER_PROXY,
        "image": settings.image,
        "imagePullPolicy": settings.image_pull_policy,
        "args": ["proxyrunner", "run"],
        "env": [{"name": "HOME", "value": "/tmp"}],  # noqa: S108
        "ports": [
            {"name": names.PORT_MCP, "containerPort": inputs.proxy_port, "protocol": "TCP"},
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
    volumes = [children.config_volume("runconfig", child_names(inputs).runconfig)]
    pod = children.pod_spec(settings, account=name, container=container, volumes=volumes, token=True)
    replicas = 0 if inputs.server.spec.suspend else inputs.server.spec.proxy.replicas
    return children.deployment(inputs, name, PROXY, replicas=replicas, pod=pod)

"""Objects as a cluster would hold them."""

import base64
from dataclasses import replace
from typing import Any

from fairway.api.proxystatus import Endpoint, EndpointState, Offered, Route, Server, Tools
from fairway.controllers.contents import content_of
from fairway.controllers.mcpserver.inputs import Inputs, gather, unmet
from fairway.controllers.mcpserver.observation import Observation, Target
from fairway.controllers.mcpserver.proxy import route
from fairway.controllers.mcpserver.rules import rules_of
from fairway.controllers.mcpserver.workload import needs_of
from fairway.controllers.settings import Settings

SETTINGS = Settings(
    image="fairway:test",
    node_image="node:test",
    package_index="https://index.example.com/simple",
    npm_registry="https://registry.example.com",
    package_ca="authorities",
)
NOW = "2026-01-02T00:00:00Z"
CALC = Server(name="calc", version="1.0", protocol_versions=("2026-07-28",), capabilities=("prompts", "tools"))
TOOLS = "def add(a: int, b: int) -> int:\n    return a + b\n"


def server(*, generation: int = 1, status: Any = None, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "fairway.dev/v1alpha1",
        "kind": "MCPServer",
        "metadata": {"name": "hello", "namespace": "team", "uid": "s-1", "generation": generation},
        "spec": spec or {"inlineTools": {"python": TOOLS}},
        **({"status": status} if status else {}),
    }


def tool_config(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "fairway.dev/v1alpha1",
        "kind": "MCPToolConfig",
        "metadata": {"name": "few", "namespace": "team", "uid": "t-1", "generation": 1},
        "spec": spec,
    }


def inputs(obj: Any = None, config: Any = None, *held: Any, settings: Settings = SETTINGS) -> Inputs:
    """As the reconciler gathers them; `held` are the Secrets and ConfigMaps that exist."""
    gathered = gather(obj or server(), config)
    assert isinstance(gathered, Inputs), gathered
    needed = needs_of(gathered, settings)
    contents = {(o["kind"], o["metadata"]["name"]): content_of(o, text=True) for o in held}
    known = replace(gathered, needs=needed, contents=contents, unmet=unmet(needed, contents, namespace="team"))
    rules, unruled = rules_of(known, settings)
    return replace(known, rules=rules, unruled=unruled)


def secret(name: str = "s", uid: str = "x-1", **values: str) -> dict[str, Any]:
    data = {key: base64.b64encode(value.encode()).decode() for key, value in values.items()}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": "team", "uid": uid},
        "data": data,
    }


def config_map(name: str = "c", uid: str = "y-1", **values: str) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "team", "uid": uid}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": values}


def deployment(*, ready: int = 1, replicas: int = 1, updated: int = 1, wanted: int = 1, observed: int = 1) -> Any:
    return {
        "metadata": {"name": "hello", "generation": 1},
        "spec": {"replicas": wanted},
        "status": {
            "observedGeneration": observed,
            "replicas": replicas,
            "readyReplicas": ready,
            "updatedReplicas": updated,
        },
    }


def pod(name: str = "hello-1", *, ready: bool = True, port: str = "mcp", **container_status: Any) -> dict[str, Any]:
    status = container_status or {"state": {"running": {}}, "restartCount": 0}
    return {
        "metadata": {"name": name, "namespace": "team", "uid": f"uid-{name}", "creationTimestamp": NOW},
        "spec": {"containers": [{"name": "c", "ports": [{"name": port, "containerPort": 8081}]}]},
        "status": {
            "phase": "Running",
            "podIP": "10.0.0.7",
            "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
            "containerStatuses": [{"name": "c", "image": "x:1", **status}],
        },
    }


def seen(
    of: Inputs, *endpoints: Endpoint, uid: str = "uid-hello-proxy-1", tools: Tools | None = None, **more: Any
) -> Any:
    good = [e for e in endpoints if e.state is EndpointState.OK]
    target = Target(
        namespace="team",
        server="hello",
        pod="hello-proxy-1",
        uid=uid,
        via="proxy",
        address="10.0.0.8:8081",
        expected=_hash(of),
        ready=True,
        restarts=0,
    )
    answer = Route(
        name="team/hello",
        hash=more.pop("hash", _hash(of)),
        ready=bool(good),
        endpoints=endpoints,
        server=CALC if good else None,
        tools=(tools or Tools(count=1, names=("add",), digest="sha256:1", bytes=150)) if good else None,
        prompts=Offered(count=2, names=("a", "b")) if good else None,
    )
    return Observation(target=target, route=answer, **more)


def _hash(of: Inputs) -> str:
    from fairway.api.runconfig import route_hash

    return route_hash(route(of))


def endpoint(state: EndpointState = EndpointState.OK, message: str = "") -> Endpoint:
    return Endpoint(address="10.0.0.7:8080", pod="hello-1", uid="uid-hello-1", state=state, message=message)

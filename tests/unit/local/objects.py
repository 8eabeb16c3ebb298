"""Objects that several tests of local mode share."""

from fairway.controllers.resources import CATALOGUE
from fairway.kube.resource import DEPLOYMENT, POD, SECRET
from fairway.local.pod import from_template
from fairway.runtime.memory import MemoryWorld


def new_world():
    return MemoryWorld(catalogue=CATALOGUE.plus((SECRET,)))


def deployment(
    name="hello", *, replicas=1, image="i", args=(), env=(), volumes=(), mounts=(), probe=True, strategy=None
):
    container = {
        "name": "server",
        "image": image,
        "args": list(args),
        "env": list(env),
        "volumeMounts": list(mounts),
        "ports": [{"name": "mcp", "containerPort": 8080}],
    }
    if probe:
        container["readinessProbe"] = {"tcpSocket": {"port": "mcp"}, "periodSeconds": 1, "failureThreshold": 2}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "replicas": replicas,
            "strategy": strategy or {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [container], "volumes": list(volumes), "terminationGracePeriodSeconds": 5},
            },
        },
    }


def put_pod(world, owner, *, host_port, suffix="aaaaa"):
    """A pod of this Deployment, as the deployment controller would make it."""
    live = world.put(owner)
    return world.put(from_template(live, suffix=suffix, host_ports={8080: host_port}))


def pods(world):
    return world.store.list(POD, "default")


def status_of_deployment(world, name="hello"):
    return world.store.get(DEPLOYMENT, "default", name).get("status", {})


def set_ready(world, pod, ready=True):
    status = {"conditions": [{"type": "Ready", "status": "True" if ready else "False"}]}
    world.set_status(POD.ref("default", pod["metadata"]["name"]), status)

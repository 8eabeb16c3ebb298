"""What all generated objects share: names, labels and the security of their pods."""

from collections.abc import Sequence
from typing import Any

from fairway.api import names
from fairway.api.names import ChildNames
from fairway.controllers.mcpserver.inputs import Inputs
from fairway.controllers.settings import Settings

Object = dict[str, Any]

TMP = "/tmp"  # noqa: S108  an emptyDir of the pod


def child_names(inputs: Inputs) -> ChildNames:
    return ChildNames(inputs.server.metadata.name)


def metadata(inputs: Inputs, name: str, component: str) -> Object:
    """Metadata of a generated object; the owner reference is the world's business."""
    server = inputs.server.metadata
    return {"name": name, "namespace": server.namespace, "labels": names.labels(server.name, component)}


def selector(inputs: Inputs, component: str) -> dict[str, str]:
    return names.selector(inputs.server.metadata.name, component)


def config_map(inputs: Inputs, name: str, component: str, data: dict[str, str]) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata(inputs, name, component),
        "data": data,
    }


def service_account(inputs: Inputs, name: str, component: str) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": metadata(inputs, name, component),
        "automountServiceAccountToken": False,
    }


def deployment(
    inputs: Inputs, name: str, component: str, *, replicas: int | None, pod: Object, template: Object | None = None
) -> Object:
    """A Deployment that replaces pods one by one without a gap; `template` is the pods' metadata.

    Without `replicas` their number is somebody else's business.
    """
    template_metadata = template or {"labels": names.labels(inputs.server.metadata.name, component)}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata(inputs, name, component),
        "spec": {
            **({} if replicas is None else {"replicas": replicas}),
            "revisionHistoryLimit": 3,
            "selector": {"matchLabels": selector(inputs, component)},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
            "template": {"metadata": template_metadata, "spec": pod},
        },
    }


def stateful_set(
    inputs: Inputs, name: str, component: str, *, replicas: int | None, pod: Object, template: Object
) -> Object:
    """A StatefulSet whose pods start side by side, and one of which that is broken can be replaced."""
    made = deployment(inputs, name, component, replicas=replicas, pod=pod, template=template)
    spec = {field: value for field, value in made["spec"].items() if field != "strategy"}
    spec |= {
        "podManagementPolicy": "Parallel",
        "serviceName": child_names(inputs).endpoints_service,
        "updateStrategy": {"type": "RollingUpdate"},
    }
    return {**made, "kind": "StatefulSet", "spec": spec}


def pod_spec(
    settings: Settings,
    *,
    account: str,
    container: Object,
    volumes: list[Object],
    init: Sequence[Object] = (),
    beside: Sequence[Object] = (),
    token: bool | None = False,
    security: Object | None = None,
    pull_secrets: Sequence[str] = (),
) -> Object:
    """A pod that the `restricted` Pod Security standard admits, with a writable /tmp as its home.

    `security` is a user's word on the container's security and goes before ours; `token` None leaves it to the account.
    `init` runs before the container, `beside` next to it.
    """
    if not any(volume["name"] == "tmp" for volume in volumes):
        volumes = [*volumes, {"name": "tmp", "emptyDir": {}}]
    user = settings.run_as_user
    return {
        "serviceAccountName": account,
        **({} if token is None else {"automountServiceAccountToken": token}),
        **({"imagePullSecrets": [{"name": name} for name in pull_secrets]} if pull_secrets else {}),
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 30,
        "securityContext": {
            "runAsNonRoot": True,
            **({} if user is None else {"runAsUser": user, "runAsGroup": user, "fsGroup": user}),
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        **({"initContainers": [_restricted(one) for one in init]} if init else {}),
        "containers": [_restricted(container, security), *map(_restricted, beside)],
        "volumes": volumes,
    }


def _restricted(container: Object, security: Object | None = None) -> Object:
    mounts = list(container.get("volumeMounts", ()))
    if not any(mount["mountPath"].rstrip("/") == TMP for mount in mounts):
        mounts.append({"name": "tmp", "mountPath": TMP})
    return {
        "terminationMessagePolicy": "File",
        **container,
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
            **(security or {}),
        },
        "volumeMounts": mounts,
    }


def secrets_volume(name: str, secrets: Sequence[tuple[str, str, bool]]) -> Object:
    """Secrets by name, key, and whether the pod starts without it: a file NAME/KEY for each, which follows it."""
    sources = []
    for secret in sorted({name for name, _, _ in secrets}):
        mine = sorted((key, optional) for its_name, key, optional in secrets if its_name == secret)
        source: Object = {"name": secret, "items": [{"key": key, "path": f"{secret}/{key}"} for key, _ in mine]}
        if all(optional for _, optional in mine):
            source["optional"] = True
        sources.append({"secret": source})
    return {"name": name, "projected": {"sources": sources}}


def config_volume(name: str, config_map_name: str) -> Object:
    return {"name": name, "configMap": {"name": config_map_name}}

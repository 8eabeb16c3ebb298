"""Everything that puts the operator into a cluster, as objects. Pure."""

from typing import Any

from fairway.api.crd import crds
from fairway.api.names import LABEL_MANAGED_BY, LABEL_NAME
from fairway.controllers import access

Object = dict[str, Any]

NAMESPACE = "fairway-system"
NAME = "fairway-operator"
SETTINGS_DIRECTORY = "/etc/fairway"
"""Where the ConfigMap `fairway-operator` is mounted, if there is one; its key is `operator.yaml`."""
_LABELS = {LABEL_NAME: NAME, LABEL_MANAGED_BY: "fairway-install"}


def objects(*, image: str, namespace: str = NAMESPACE, replicas: int = 2) -> list[Object]:
    """In the order in which they should be applied."""
    # one in each of two namespaces must not take each other's rights away
    in_cluster = NAME if namespace == NAMESPACE else f"{NAME}-{namespace}"
    return [
        *crds().values(),
        _object("v1", "Namespace", namespace, None),
        _object("v1", "ServiceAccount", NAME, namespace),
        _object("rbac.authorization.k8s.io/v1", "ClusterRole", in_cluster, None, rules=access.cluster_rules()),
        _binding("ClusterRoleBinding", "ClusterRole", in_cluster, None, namespace),
        _object("rbac.authorization.k8s.io/v1", "Role", NAME, namespace, rules=access.leader_rules()),
        _binding("RoleBinding", "Role", NAME, namespace, namespace),
        _deployment(image, namespace, replicas),
    ]


def _object(api_version: str, kind: str, name: str, namespace: str | None, **body: Any) -> Object:
    where = {"namespace": namespace} if namespace else {}
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {"name": name, **where, "labels": dict(_LABELS)},
        **body,
    }


def _binding(kind: str, role_kind: str, name: str, namespace: str | None, account_namespace: str) -> Object:
    return _object(
        "rbac.authorization.k8s.io/v1",
        kind,
        name,
        namespace,
        roleRef={"apiGroup": "rbac.authorization.k8s.io", "kind": role_kind, "name": name},
        subjects=[{"kind": "ServiceAccount", "name": NAME, "namespace": account_namespace}],
    )


def _deployment(image: str, namespace: str, replicas: int) -> Object:
    container = {
        "name": "operator",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "args": ["operator", "--image", image, "--leader-elect"],
        "env": [
            {"name": "HOME", "value": "/tmp"},  # noqa: S108  the pod's own emptyDir
            {
                "name": "POD_NAMESPACE",
                "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}},
            },
            {"name": "POD_NAME", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}},
        ],
        "ports": [
            {"name": "metrics", "containerPort": 8080, "protocol": "TCP"},
            {"name": "health", "containerPort": 8081, "protocol": "TCP"},
        ],
        "readinessProbe": {
            "httpGet": {"path": "/readyz", "port": "health", "scheme": "HTTP"},
            "periodSeconds": 2,
            "timeoutSeconds": 2,
        },
        "startupProbe": {
            "httpGet": {"path": "/healthz", "port": "health", "scheme": "HTTP"},
            "periodSeconds": 1,
            "timeoutSeconds": 1,
            "failureThreshold": 300,
        },
        "livenessProbe": {
            "httpGet": {"path": "/healthz", "port": "health", "scheme": "HTTP"},
            "periodSeconds": 10,
            "timeoutSeconds": 5,
        },
        "resources": {"requests": {"cpu": "50m", "memory": "96Mi"}, "limits": {"memory": "512Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
        "volumeMounts": [
            {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108
            {"name": "settings", "mountPath": SETTINGS_DIRECTORY, "readOnly": True},
        ],
    }
    pod = {
        "serviceAccountName": NAME,
        "terminationGracePeriodSeconds": 15,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 65532,
            "runAsGroup": 65532,
            "fsGroup": 65532,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container],
        "volumes": [
            {"name": "tmp", "emptyDir": {}},
            # nothing has to be in it; what is written there later is read without a restart
            {"name": "settings", "configMap": {"name": NAME, "optional": True}},
        ],
    }
    return _object(
        "apps/v1",
        "Deployment",
        NAME,
        namespace,
        spec={
            "replicas": replicas,
            "revisionHistoryLimit": 3,
            "selector": {"matchLabels": {LABEL_NAME: NAME}},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
            "template": {"metadata": {"labels": dict(_LABELS)}, "spec": pod},
        },
    )

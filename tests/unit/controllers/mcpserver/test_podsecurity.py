import pytest

from fairway.controllers.mcpserver.podsecurity import violations
from fairway.controllers.mcpserver.workload import pod_of
from tests.unit.controllers.mcpserver.samples import SETTINGS, inputs, server

# what a server asks for, and what the restricted standard says to it; tests/cluster asks a real API server the same
CASES = {
    "nothing": ({}, None),
    "an unprivileged port": ({"securityContext": {"capabilities": {"add": ["NET_BIND_SERVICE"]}}}, None),
    "another user": ({"securityContext": {"runAsUser": 1000}}, None),
    "a writable root": ({"securityContext": {"readOnlyRootFilesystem": False}}, None),
    "a claim": ({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]}, None),
    "a helper": ({"podTemplate": {"spec": {"containers": [{"name": "h", "image": "h"}]}}}, None),
    "root": ({"securityContext": {"runAsUser": 0}}, "container server runs as root"),
    "privileged": ({"securityContext": {"privileged": True}}, "container server is privileged"),
    "a capability": (
        {"securityContext": {"capabilities": {"add": ["SYS_ADMIN"]}}},
        "container server adds the capabilities SYS_ADMIN",
    ),
    "kept capabilities": (
        {"securityContext": {"capabilities": {"drop": ["NET_RAW"]}}},
        "container server does not drop all capabilities",
    ),
    "escalation": (
        {"securityContext": {"allowPrivilegeEscalation": True}},
        "container server allows privilege escalation",
    ),
    "no seccomp": (
        {"securityContext": {"seccompProfile": {"type": "Unconfined"}}},
        "container server has the seccomp profile Unconfined",
    ),
    "a host path": ({"volumes": [{"name": "v", "hostPath": {"path": "/"}}]}, "volume v is a hostPath"),
    "the host's network": ({"podTemplate": {"spec": {"hostNetwork": True}}}, "hostNetwork is true"),
    "the host's processes": ({"podTemplate": {"spec": {"hostPID": True}}}, "hostPID is true"),
    "a sysctl": (
        {"podTemplate": {"spec": {"securityContext": {"sysctls": [{"name": "kernel.msgmax", "value": "1"}]}}}},
        "sysctl kernel.msgmax",
    ),
    "a root helper": (
        {
            "podTemplate": {
                "spec": {"containers": [{"name": "h", "image": "h", "securityContext": {"runAsNonRoot": False}}]}
            }
        },
        "container h may run as root",
    ),
    "a host port": (
        {
            "podTemplate": {
                "spec": {
                    "containers": [
                        {"name": "h", "image": "h", "ports": [{"containerPort": 1, "hostPort": 1, "protocol": "TCP"}]}
                    ]
                }
            }
        },
        "container h has a host port",
    ),
    "an NFS volume": (
        {"podTemplate": {"spec": {"volumes": [{"name": "n", "nfs": {"server": "s", "path": "/"}}]}}},
        "volume n is a nfs",
    ),
    "a profile for all": (
        {"podTemplate": {"spec": {"securityContext": {"seccompProfile": {"type": "Unconfined"}}}}},
        "the pod has the seccomp profile Unconfined",
    ),
    "SELinux": ({"securityContext": {"seLinuxOptions": {"user": "u"}}}, "container server sets SELinux options"),
}


@pytest.mark.parametrize("name", CASES)
def test_what_breaks_the_restricted_standard_is_named(name):
    spec, said = CASES[name]
    _, pod = pod_of(inputs(server(image="w", **spec)), SETTINGS)
    found = violations(pod)
    assert (said in found) if said else (found == [])

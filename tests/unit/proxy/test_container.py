"""What a pod says of its container: the run to attach to, or a sentence that says what is in the way."""

import re
from typing import Any

import pytest

from fairway.proxy.container import Run, running

RUNNING = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}


def pod(state: Any = RUNNING, *, container: Any = None, **status: Any) -> dict[str, Any]:
    found = {"name": "server", "containerID": "containerd://1", "state": state, **status.pop("container_status", {})}
    return {
        "metadata": {"name": "w-0", "uid": "u"},
        "spec": {"containers": [{"name": "other"}, {"name": "server", "stdin": True, **(container or {})}]},
        "status": {"containerStatuses": [{"name": "other", "state": RUNNING, "containerID": "x"}, found], **status},
    }


def look(found: dict[str, Any] | None) -> Run | str:
    return running(found, name="w-0", container="server")


def test_a_running_container_is_named_by_pod_and_run() -> None:
    assert look(pod()) == Run("u", "containerd://1")
    assert look(pod(container_status={"containerID": "containerd://2"})) == Run("u", "containerd://2")


TERMINATED = {"terminated": {"exitCode": 3, "reason": "Error", "message": "  no such module\n"}}
WAITING = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 20s"}}
NO_NODE = [{"type": "PodScheduled", "status": "False", "message": "0/1 nodes are available"}]


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (None, "there is no pod w-0"),
        (pod() | {"spec": {"containers": [{"name": "other"}]}}, "the pod w-0 has no container server"),
        (pod(container={"stdin": False}), "takes no input: it has to say stdin: true"),
        (pod(container={"tty": True}), "it has to say tty: false"),
        (pod() | {"metadata": {"uid": "u", "deletionTimestamp": "now"}}, "the pod w-0 is being deleted"),
        (pod() | {"status": {}}, "the pod w-0 waits to be started"),
        (pod() | {"status": {"conditions": NO_NODE}}, "waits for a node: 0/1 nodes are available"),
        (pod() | {"status": {"reason": "Evicted"}}, "the pod w-0 waits: Evicted"),
        (pod({"waiting": {"reason": "ImagePullBackOff", "message": "no"}}), r"w-0 waits \(ImagePullBackOff: no\)$"),
        (pod({}), r"waits \(ContainerCreating\)$"),
        (pod(TERMINATED), r"ended with exit code 3 \(Error\): no such module$"),
        (
            pod(WAITING, container_status={"lastState": TERMINATED}),
            r"waits \(CrashLoopBackOff: back-off 20s\); before that it ended with exit code 3 \(Error\)",
        ),
        (pod(container_status={"containerID": ""}), r"waits \(ContainerCreating\)$"),
    ],
)  # fmt: skip
def test_anything_else_says_what_is_in_the_way(found: dict[str, Any] | None, why: str) -> None:
    said = look(found)
    assert isinstance(said, str)
    assert re.search(why, said), said


def test_what_a_container_said_at_its_end_is_cut() -> None:
    said = look(pod({"terminated": {"exitCode": 1, "message": "x" * 5000}}))
    assert isinstance(said, str)
    assert len(said) < 400

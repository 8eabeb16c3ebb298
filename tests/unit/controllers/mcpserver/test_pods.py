import pytest

from fairway.api import names
from fairway.api.conditions import Reason
from fairway.controllers.mcpserver import pods
from fairway.controllers.mcpserver.observation import address_of
from tests.unit.controllers.mcpserver.samples import pod


def kept(pod):
    return pods.looked_at({"apiVersion": "v1", "kind": "Pod", **pod})


def waiting(reason, message="", **more):
    return pod(ready=False, state={"waiting": {"reason": reason, "message": message}}, restartCount=3, **more)


@pytest.mark.parametrize(
    ("sick", "reason", "said"),
    [
        (waiting("ImagePullBackOff", "no such host"), Reason.IMAGE_PULL_BACK_OFF, "image x:1: no such host"),
        (waiting("ErrImageNeverPull"), Reason.IMAGE_PULL_BACK_OFF, "image x:1: ErrImageNeverPull"),
        (
            waiting("CreateContainerConfigError", 'secret "s" not found'),
            Reason.CONTAINER_CONFIG_ERROR,
            'secret "s" not found',
        ),
        (
            waiting(
                "CreateContainerConfigError",
                'container has runAsNonRoot and image will run as root (pod: "hello-1_team(5d)", container: server)',
            ),
            Reason.IMAGE_NEEDS_ROOT,
            "image x:1 runs as root: set spec.securityContext.runAsUser, or give the image another user",
        ),
        (
            waiting(
                "CreateContainerConfigError",
                "container has runAsNonRoot and image has non-numeric user (app), cannot verify user is non-root",
            ),
            Reason.IMAGE_NEEDS_ROOT,
            "image x:1 names its user without a number, so that it may be root: set spec.securityContext.runAsUser, or "
            "give the image another user",
        ),
        (
            waiting(
                "CrashLoopBackOff", lastState={"terminated": {"exitCode": 1, "message": "a\nValueError: no key\n"}}
            ),
            Reason.CRASH_LOOP_BACK_OFF,
            "the container exited with code 1, restarted 3 times: ValueError: no key",
        ),
        (
            waiting("CrashLoopBackOff", lastState={"terminated": {"exitCode": 137, "reason": "OOMKilled"}}),
            Reason.OOM_KILLED,
            "the container used more memory than its limit and was killed, restarted 3 times",
        ),
        (
            pod(ready=False, state={"terminated": {"exitCode": 2}}, restartCount=0),
            Reason.CRASH_LOOP_BACK_OFF,
            "the container exited with code 2",
        ),
        (
            pod(ready=False),
            Reason.NOT_LISTENING,
            "the container runs, but nothing answers on port 8080 (spec.port); on 127.0.0.1 alone nobody reaches it",
        ),
        (
            waiting("PortTaken", "port 80 is in use"),
            Reason.PORT_TAKEN,
            "port 80 is in use",
        ),
        (
            waiting(
                "CrashLoopBackOff",
                lastState={"terminated": {"reason": "StartError", "message": 'exec: "/root/run": permission denied'}},
            ),
            Reason.IMAGE_NEEDS_ROOT,
            'image x:1: exec: "/root/run": permission denied',
        ),
        (
            waiting(
                "CrashLoopBackOff",
                lastState={"terminated": {"reason": "Error", "exitCode": 1, "message": "runAsNonRoot is fine"}},
            ),
            Reason.CRASH_LOOP_BACK_OFF,
            "the container exited with code 1, restarted 3 times: runAsNonRoot is fine",
        ),
        (waiting("ContainerCreating"), Reason.PENDING, "pod hello-1 is starting"),
    ],
)
def test_a_sick_pod_is_put_into_words(sick, reason, said):
    assert pods.problem([sick], port=8080) == pods.Problem(reason, said)
    assert pods.problem([kept(sick)], port=8080) == pods.Problem(reason, said)


def test_what_is_kept_of_a_pod_answers_every_question_and_is_a_small_part_of_it():
    whole = pod()
    (container,) = whole["spec"]["containers"]
    container |= {"name": "server", "readinessProbe": {"exec": {"command": ["true"]}}, "env": [{"name": "A"}] * 50}
    whole["spec"] |= {
        "volumes": [{"name": names.RUNCONFIG_VOLUME, "configMap": {"name": "r"}}, {"name": "other", "emptyDir": {}}],
        "tolerations": [{"key": "node.kubernetes.io/not-ready"}] * 10,
    }
    whole["metadata"]["annotations"] = {names.ANNOTATION_RUNCONFIG_HASH: "h", "large": "x" * 10_000}
    small = kept(whole)
    for question in (pods.is_gone, pods.is_ready, pods.is_running, pods.is_well_within, pods.restarts):
        assert question(small) == question(whole), question
    assert address_of(small, "mcp") == address_of(whole, "mcp") == "10.0.0.7:8081"
    assert small["metadata"]["annotations"] == {names.ANNOTATION_RUNCONFIG_HASH: "h"}
    assert [volume["name"] for volume in small["spec"]["volumes"]] == [names.RUNCONFIG_VOLUME]
    assert len(str(small)) < len(str(whole)) / 10


def test_a_pod_that_fits_no_node_says_what_the_scheduler_said():
    homeless = pod(ready=False)
    homeless["status"] = {
        "phase": "Pending",
        "conditions": [{"type": "PodScheduled", "status": "False", "message": "0/1 nodes: Insufficient cpu"}],
    }
    assert pods.problem([homeless]) == pods.Problem(Reason.UNSCHEDULABLE, "0/1 nodes: Insufficient cpu")


def test_ready_pods_have_no_problem():
    assert pods.problem([pod()]) is None


def test_a_pod_on_its_way_out_counts_no_more():
    leaving = waiting("CrashLoopBackOff", lastState={"terminated": {"exitCode": 1}})
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert pods.problem([leaving, pod()]) is None
    assert not pods.is_ready(leaving | {"status": pod()["status"]})


def test_what_a_person_must_fix_is_told_before_what_passes_by_itself():
    starting = waiting("ContainerCreating")
    starting["metadata"] = starting["metadata"] | {"name": "hello-9", "creationTimestamp": "2026-02-01T00:00:00Z"}
    found = pods.problem([starting, waiting("ErrImagePull", "denied")])
    assert found is not None
    assert found.reason is Reason.IMAGE_PULL_BACK_OFF


def test_a_long_message_is_cut():
    found = pods.problem([waiting("ErrImagePull", "x" * 10_000)])
    assert found is not None
    assert len(found.message) <= 400


@pytest.mark.parametrize("status", [{}, {"conditions": None}, {"containerStatuses": None, "phase": "Pending"}])
def test_a_pod_that_the_kubelet_has_not_touched_yet_is_starting(status):
    fresh = {"metadata": {"name": "a", "namespace": "team"}, "spec": {"containers": []}, "status": status}
    found = pods.problem([fresh], port=1)
    assert found is not None
    assert found.reason is Reason.PENDING
    assert not pods.is_running(fresh)


CRASHED = {"terminated": {"exitCode": 7, "message": "no key\n"}}


def test_between_two_crashes_it_is_the_crash_that_is_told():
    between = pod(ready=False, state={"running": {}}, lastState=CRASHED, restartCount=3)
    found = pods.problem([between], port=8080)
    assert (found.reason, found.message) == (
        Reason.CRASH_LOOP_BACK_OFF,
        "the container exited with code 7, restarted 3 times: no key; it runs again, and is not ready",
    )
    wordy = {"terminated": {"exitCode": 7, "message": "x" * 1000}}
    long = pods.problem([pod(ready=False, state={"running": {}}, lastState=wordy, restartCount=3)], port=8080)
    assert long.message.endswith("; it runs again, and is not ready")
    assert len(long.message) == 400


def test_who_ended_well_before_is_judged_by_what_it_does_now():
    ended = {"terminated": {"exitCode": 0}}
    again = pod(ready=False, state={"running": {}}, lastState=ended, restartCount=1)
    assert pods.problem([again], port=8080).reason == Reason.NOT_LISTENING

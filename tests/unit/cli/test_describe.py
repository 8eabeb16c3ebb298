"""What `fairway describe` says of objects and pods."""

from datetime import UTC, datetime

from fairway.api.conditions import Reason
from fairway.cli.advice import ADVICE, NOTHING_TO_DO
from fairway.cli.describe import PodLook, pod_lines, summary

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
SINCE = "2026-01-02T03:03:53Z"


def condition(type_, status, reason, message=""):
    return {"type": type_, "status": status, "reason": reason, "message": message, "lastTransitionTime": SINCE}


def server(*conditions, generation=1, **status):
    return {
        "kind": "MCPServer",
        "metadata": {"name": "weather", "namespace": "default", "generation": generation},
        "spec": {"image": "weather:1"},
        "status": {"observedGeneration": 1, "conditions": list(conditions), **status},
    }


def test_every_reason_has_either_advice_or_needs_none():
    assert set(Reason) == NOTHING_TO_DO | set(ADVICE)
    assert not NOTHING_TO_DO & set(ADVICE)
    for text in ADVICE.values():
        text.format(name="x")


def test_what_is_wrong_comes_first_with_what_to_do():
    lines = summary(server(condition("Ready", "False", "NotMCP", "GET / answered\n  a page"), phase="Failed"), now=NOW)
    assert lines[0] == "weather  Failed  for 12s"
    assert lines[1] == "  Ready=False  NotMCP  GET / answered a page"
    assert lines[2].startswith("      do: ")


def test_a_healthy_object_is_given_no_advice():
    lines = summary(
        server(condition("Ready", "True", "Ready"), condition("Degraded", "False", "Healthy"), phase="Ready"), now=NOW
    )
    assert not [line for line in lines if "do:" in line]


def test_the_same_message_is_said_once():
    wrong = [condition(t, "False", "CrashLoopBackOff", "it exited with code 3") for t in ("Ready", "Available")]
    text = "\n".join(summary(server(*wrong), now=NOW))
    assert text.count("it exited with code 3") == 1
    assert "as above" in text
    assert text.count("do:") == 1


def test_an_operator_that_is_behind_or_missing_is_told():
    behind = summary(server(condition("Ready", "True", "Ready"), generation=4), now=NOW)
    assert "generation 1" in behind[1]
    assert "at 4" in behind[1]
    nobody = {"kind": "MCPServer", "metadata": {"name": "a", "namespace": "default"}, "spec": {}}
    assert "no status yet" in summary(nobody, now=NOW)[0]


def pod(*containers, ready=False, **status):
    conditions = [{"type": "Ready", "status": str(ready)}]
    return {
        "metadata": {"name": "weather-1", "creationTimestamp": SINCE},
        "status": {"conditions": conditions, "containerStatuses": list(containers), **status},
    }


def test_a_crashed_container_shows_exit_code_restarts_and_last_words():
    crashed = {
        "name": "server",
        "restartCount": 3,
        "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 40s"}},
        "lastState": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}},
    }
    assert pod_lines([PodLook(pod(crashed), {"server": ["out of memory"]})], now=NOW) == [
        "  pods:",
        "  weather-1  not ready  12s",
        "      server: CrashLoopBackOff: back-off 40s",
        "      server: the run before ended with exit code 137 (OOMKilled), restarted 3 times",
        "      | out of memory",
    ]


def test_a_ready_pod_is_one_line_and_an_unscheduled_one_says_why():
    assert pod_lines([PodLook(pod(ready=True), {})], now=NOW) == ["  pods:", "  weather-1  ready  12s"]
    stuck = pod()
    stuck["status"]["conditions"] = [{"type": "PodScheduled", "status": "False", "message": "no node fits"}]
    assert pod_lines([PodLook(stuck, {})], now=NOW)[-1] == "      no node fits"

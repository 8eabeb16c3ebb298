"""What runs a server when the operator that made it is replaced by a newer one, with a newer image."""

from dataclasses import replace

import pytest

from fairway.controllers.mcpserver.workload import objects, running
from tests.unit.controllers.mcpserver.samples import SETTINGS, TOOLS, inputs, server

NEWER = replace(SETTINGS, image="fairway:newer")
OURS = {
    "inline tools": {"inlineTools": {"python": TOOLS}},
    "a package": {"package": {"pypi": "mcp-server-time", "version": "1.0"}, "transport": "http"},
    "a sidecar": {"image": "w:1", "proxy": {"mode": "sidecar"}},
}


def made(spec, *, settings=SETTINGS, before=None, annotations=None):
    obj = server(**spec)
    obj["metadata"]["annotations"] = annotations or {}
    (workload,) = objects(replace(inputs(obj), running=running(before)), settings)
    return workload


def images(workload):
    pod = workload["spec"]["template"]["spec"]
    return {c["image"] for c in (*pod.get("initContainers", ()), *pod["containers"])}


@pytest.mark.parametrize("spec", OURS.values(), ids=OURS)
def test_a_newer_image_alone_changes_nothing_about_what_runs(spec):
    before = made(spec)
    assert made(spec, settings=NEWER, before=before) == before
    scaled = made({**spec, "replicas": 3}, settings=NEWER, before=before)
    assert scaled["spec"]["template"] == before["spec"]["template"]


@pytest.mark.parametrize("spec", OURS.values(), ids=OURS)
def test_pods_that_are_replaced_anyway_get_the_newer_image(spec):
    before = made(spec)
    changed = made({**spec, "env": [{"name": "A", "value": "b"}]}, settings=NEWER, before=before)
    restarted = made(spec, settings=NEWER, before=before, annotations={"fairway.dev/restarted-at": "now"})
    for after in (changed, restarted):
        assert images(after) == images(before) - {"fairway:test"} | {"fairway:newer"}
        assert running(after).image == "fairway:newer"
    # and with that they go on, whatever the operator before it had
    assert made(spec, settings=NEWER, before=restarted, annotations={"fairway.dev/restarted-at": "now"}) == restarted


def test_an_image_that_somebody_wrote_there_by_hand_is_not_believed():
    before = made(OURS["inline tools"])
    before["metadata"]["annotations"]["fairway.dev/image"] = "evil:1"
    assert images(made(OURS["inline tools"], before=before)) == {"fairway:test"}


@pytest.mark.parametrize("spec", [{"image": "w:1"}, {"package": {"npm": "a", "version": "1"}}])
def test_where_our_image_does_not_run_nothing_is_said_of_it(spec):
    workload = made(spec)
    assert "annotations" not in workload["metadata"]
    assert running(workload) is None
    assert made(spec, settings=NEWER) == workload


def test_without_a_workload_nothing_runs_on():
    assert running(None) is None
    assert images(made(OURS["inline tools"], settings=NEWER)) == {"fairway:newer"}

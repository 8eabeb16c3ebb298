"""What changes mean: fields, rollouts and tools."""

import pytest

from fairway.cli.changes import Field, fields, inline_tools, meaning, shown, tool_change
from fairway.controllers.rehearsal import Change
from fairway.kube.resource import CONFIG_MAP, DEPLOYMENT, NETWORK_POLICY


def obj(**spec):
    return {"kind": "MCPServer", "metadata": {"name": "a", "namespace": "n"}, "spec": spec}


def paths(before, after):
    return [shown(field) for field in fields(before, after)]


def test_scalars_show_both_values_and_long_ones_only_where():
    assert paths(obj(image="w:1", replicas=1), obj(image="w:2")) == [
        "spec.image w:1 -> w:2",
        "spec.replicas 1 -> nothing",
    ]
    assert paths(obj(suspend=False), obj(suspend=True)) == ["spec.suspend false -> true"]
    assert paths(obj(python="x" * 100), obj(python="y")) == ["spec.python"]


def test_lists_with_keys_differ_item_by_item():
    before = obj(env=[{"name": "A", "value": "1"}, {"name": "B", "value": "2"}])
    after = obj(env=[{"name": "B", "value": "2"}, {"name": "A", "value": "3"}])
    assert paths(before, after) == ["spec.env[A].value 1 -> 3"]


def test_bookkeeping_and_status_are_no_difference():
    after = {**obj(image="x"), "status": {"phase": "Ready"}}
    after["metadata"] = {**after["metadata"], "resourceVersion": "9", "generation": 3, "uid": "u"}
    after["metadata"]["annotations"] = {"fairway.dev/applied-hash": "abc"}
    assert fields(obj(image="x"), after) == []


def test_what_a_secret_holds_is_never_shown():
    assert shown(Field("data.password", "b2xk", "bmV3"), secret=True) == "data.password"


def deployment(image="i", replicas=1, component="server", **strategy):
    labels = {"fairway.dev/component": component}
    return {
        "kind": "Deployment",
        "metadata": {"name": "a", "namespace": "n", "labels": labels},
        "spec": {
            "replicas": replicas,
            "strategy": strategy or {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
            "template": {"spec": {"containers": [{"name": "server", "image": image}]}},
        },
    }


def meant(live, wanted, resource=DEPLOYMENT):
    changed = fields(live, wanted) if live and wanted else []
    return meaning(Change(resource.ref("n", "a"), live, wanted), changed)


@pytest.mark.parametrize(
    ("live", "wanted", "means"),
    [
        (deployment("a"), deployment("b"), "rolls the server, no gap"),
        (deployment("a", component="proxy"), deployment("b", component="proxy"), "rolls the proxy, no gap"),
        (deployment("a"), deployment("b", type="Recreate"), "rolls the server, with a gap"),
        (deployment("a", replicas=0), deployment("b", replicas=0), "nothing runs that could roll"),
        (deployment(replicas=1), deployment(replicas=3), "scales the server from 1 to 3, rolls nothing"),
        (None, deployment(), "starts the server"),
        (deployment(), None, "goes, and the server with it"),
    ],
)
def test_what_becomes_of_the_pods_is_said(live, wanted, means):
    assert meant(live, wanted) == means


def test_a_runconfig_reloads_and_a_network_policy_restarts_nothing():
    def config(data):
        return {"kind": "ConfigMap", "metadata": {"name": "a", "namespace": "n"}, "data": data}

    assert meant(config({"runconfig.json": "1"}), config({"runconfig.json": "2"}), CONFIG_MAP).startswith("reloads")
    assert meant(config({"tools.py": "1"}), config({"tools.py": "2"}), CONFIG_MAP) == "changes files of the pods"
    policy = {"kind": "NetworkPolicy", "metadata": {"name": "a", "namespace": "n"}, "spec": {}}
    assert "no restart" in meant(policy, {**policy, "spec": {"x": 1}}, NETWORK_POLICY)


def weather(image="weather:1", *, tools=(), **spec):
    status = {"tools": {"count": len(tools), "names": list(tools)}} if tools else {}
    return {**obj(image=image, **spec), "status": status}


def config(filter_=None, **override):
    spec = {"override": {tool: {"name": name} for tool, name in override.items()}}
    if filter_ is not None:
        spec["filter"] = list(filter_)
    return {"kind": "MCPToolConfig", "metadata": {"name": "c", "namespace": "n"}, "spec": spec}


def test_a_filter_takes_tools_away_and_a_rename_takes_one_and_gives_one():
    server = weather(tools=["now", "radar"])
    filtered = tool_change(server, server, None, config(["now"]))
    assert (filtered.added, filtered.removed, filtered.unknown) == ((), ("radar",), "")
    renamed = tool_change(server, server, None, config(now="time"))
    assert (renamed.added, renamed.removed) == (("time",), ("now",))


def test_a_filter_that_names_a_hidden_tool_shows_it_and_one_that_goes_may_show_more():
    server = weather(tools=["time"])
    before = config(["now"], now="time")
    wider = tool_change(server, server, before, config(["now", "alarm"], now="time"))
    assert (wider.added, wider.removed) == (("alarm",), ())
    open_ = tool_change(server, server, before, None)
    assert (open_.added, open_.removed) == (("now",), ("time",))
    assert "hidden so far" in open_.unknown


def test_another_image_may_have_other_tools():
    change = tool_change(weather(tools=["now"]), weather("weather:2"), None, None)
    assert (change.added, change.removed) == ((), ())
    assert change.unknown == "whether weather:2 has others is unknown until it runs"
    assert "unknown until it runs" in tool_change(None, weather(), None, None).unknown


def test_inline_tools_are_known_before_they_run():
    before = obj(inlineTools={"python": "def add(a: int) -> int: ...\ndef gone(): ..."})
    after = obj(inlineTools={"python": "def add(a: int) -> int: ...\nasync def new(): ...\ndef _private(): ..."})
    change = tool_change(before, after, None, None)
    assert (change.added, change.removed, change.unknown) == (("new",), ("gone",), "")
    assert tool_change(None, after, None, None).added == ("add", "new")
    assert not tool_change(before, before, None, None)


@pytest.mark.parametrize(
    ("source", "tools"),
    [
        ("def a(): ...\n__all__ = ['a']\ndef b(): ...", {"a"}),
        ("if True:\n    def a(): ...", {"a"}),
        ("class A:\n    def a(self): ...", set()),
        ("def broken(", set()),
    ],
)
def test_public_functions_are_read_from_the_source(source, tools):
    assert inline_tools(source) == tools

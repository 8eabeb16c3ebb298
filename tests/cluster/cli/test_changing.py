"""plan, apply and delete on a cluster: what is planned is what is then written."""

import json
import random
import time

import pytest
import yaml

from tests.cluster.controllers.conftest import until

SOURCES = {
    "image a": {"image": "weather:1"},
    "image b": {"image": "weather:2", "port": 9000},
    "inline a": {"inlineTools": {"python": "def add(a: int, b: int) -> int:\n    return a + b\n"}},
    "inline b": {"inlineTools": {"python": "def sub(a: int, b: int) -> int:\n    return a - b\n"}},
    "lines": {"image": "notes:1", "transport": "stdio", "command": ["/bin/notes"]},
    "package": {"package": {"pypi": "server-x", "version": "1.2.3"}},
    "elsewhere": {"remote": {"url": "https://mcp.example.com/mcp"}},
}
RUNS_HERE = ("image a", "image b", "inline a", "inline b")
# What may be asked for beside the source: each is there or not, in one of these forms.
ANYWHERE = {
    "cors": [{"allowedOrigins": ["https://a.example"]}, {"allowedOrigins": ["https://b.example"]}],
    "timeouts": [{"call": "30s"}, {"call": "60s"}],
    "service": [{"type": "NodePort"}, {"annotations": {"a": "b"}}],
    "ingress": [{"enabled": True, "host": "a.example"}, {"enabled": True, "host": "a.example", "path": "/x"}],
    "suspend": [True],
}
WITH_PODS = {
    "config": [{"a.txt": "one"}, {"a.txt": "two", "b.txt": "x"}],
    "resources": [{"limits": {"memory": "64Mi"}}, {"requests": {"cpu": "0.1"}}],
    "permissionProfile": [{"type": "builtin", "name": "none"}, {"type": "builtin", "name": "network"}],
    "podTemplate": [{"metadata": {"labels": {"team": "a"}}}, {"spec": {"nodeSelector": {"disk": "fast"}}}],
    "workload": ["StatefulSet"],
}


def manifest(spec, config=None):
    documents = [
        {
            "apiVersion": "fairway.dev/v1alpha1",
            "kind": "MCPServer",
            "metadata": {"name": "weather"},
            "spec": spec,
        }
    ]
    if config is not None:
        documents.append(
            {
                "apiVersion": "fairway.dev/v1alpha1",
                "kind": "MCPToolConfig",
                "metadata": {"name": "filtered"},
                "spec": config,
            }
        )
    return yaml.safe_dump_all(documents)


def random_edit(chance):
    source = chance.choice(sorted(SOURCES))
    spec = dict(SOURCES[source])
    optional = ANYWHERE | WITH_PODS if source in RUNS_HERE else ANYWHERE
    for field, forms in optional.items():
        if chance.random() < 0.25:
            spec[field] = chance.choice(forms)
    if source in RUNS_HERE:
        if chance.random() < 0.5:
            spec["replicas"] = chance.choice([0, 1, 2, 3])
        if chance.random() < 0.4:
            spec["env"] = [{"name": chance.choice("ABC"), "value": chance.choice(["x", "y"])} for _ in range(1)]
    config = None
    if source in RUNS_HERE and chance.random() < 0.4:
        spec["proxy"] = {"mode": chance.choice(["none", "sidecar"])}
    elif chance.random() < 0.6:
        spec["toolConfigRef"] = {"name": "filtered"}
        config = {"filter": chance.sample(["add", "sub", "radar"], 2)}
    return manifest(spec, config)


def settled(operator, namespace):
    count = -1
    while count != len(operator.writes(namespace)):
        count = len(operator.writes(namespace))
        time.sleep(0.8)
    return count


def written(operator, namespace, since):
    """Children that the operator wrote, by verb and object."""
    found = set()
    for write in operator.writes(namespace)[since:]:
        verb, _, name = write.partition(" ")
        if not name.endswith("/status"):
            found.add(("delete" if verb == "delete" else "write", name))
    return found


PLURALS = {"NetworkPolicy": "networkpolicies", "Ingress": "ingresses"}


def planned_writes(plan):
    return {
        ("delete" if child["what"] == "delete" else "write", f"{plural(child['kind'])}/{child['name']}")
        for entry in plan
        for child in entry["children"]
    }


def plural(kind):
    return PLURALS.get(kind, f"{kind.lower()}s")


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(2, 10))])
def test_a_plan_of_random_edits_equals_what_the_apply_writes(operator, rig_api, rig_namespace, fairway, seed):
    chance = random.Random(seed)
    for step in range(6):
        text = random_edit(chance)
        before = settled(operator, rig_namespace)
        answer = fairway("plan", "-f", "-", "-o", "json", stdin=text)
        assert answer.returncode in (0, 1), answer.stderr
        plan = json.loads(answer.stdout)
        assert settled(operator, rig_namespace) == before, "a plan writes nothing"
        applied = fairway("apply", "-f", "-", stdin=text)
        assert applied.returncode == 0, applied.stderr
        settled(operator, rig_namespace)
        assert written(operator, rig_namespace, before) == planned_writes(plan), f"step {step}:\n{text}"
        outcomes = {line.split()[1]: line.split()[0] for line in applied.stdout.splitlines()}
        foreseen = {f"{e['kind']}/{e['name']}": e["what"] for e in plan}
        for obj, outcome in outcomes.items():
            assert {"created": "create", "changed": "change", "unchanged": "none"}[outcome] == foreseen.get(obj, "none")
        again = fairway("plan", "-f", "-", stdin=text)
        assert again.returncode == 0, again.stdout + again.stderr


def test_fields_meanings_and_tools_are_told(operator, rig_namespace, fairway):
    fairway("apply", "-f", "-", stdin=manifest(SOURCES["inline a"] | {"env": [{"name": "A", "value": "1"}]}))
    settled(operator, rig_namespace)
    said = fairway("plan", "-f", "-", stdin=manifest(SOURCES["inline b"]))
    assert said.returncode == 1
    assert "~ MCPServer/weather   spec.env" in said.stdout
    assert "spec.template.spec.containers[server].env[A]" in said.stdout, "a field that goes is shown too"
    assert "rolls the server, no gap" in said.stdout
    assert "  tools   + sub   - add" in said.stdout
    scaled = fairway("plan", "-f", "-", stdin=manifest(SOURCES["inline a"] | {"replicas": 3}))
    assert "scales the server from 1 to 3" not in scaled.stdout, "the variable goes as well, so it rolls"


def test_a_changed_tool_config_shows_every_server_that_uses_it(operator, rig_namespace, fairway):
    spec = SOURCES["inline a"] | {"toolConfigRef": {"name": "filtered"}}
    fairway("apply", "-f", "-", stdin=manifest(spec, {"filter": ["add"]}))
    settled(operator, rig_namespace)
    config_only = manifest(spec, {"filter": []}).split("---\n")[1]
    said = fairway("plan", "-f", "-", stdin=config_only)
    assert "~ MCPToolConfig/filtered" in said.stdout
    assert "ConfigMap/weather-runconfig" in said.stdout
    assert "reloads the proxy, no restart" in said.stdout
    assert "  tools   - add" in said.stdout


def test_what_is_missing_is_said_before_it_is_applied(operator, rig_namespace, fairway):
    said = fairway("plan", "-f", "-", stdin=manifest(SOURCES["image a"] | {"toolConfigRef": {"name": "nowhere"}}))
    assert said.returncode == 1
    assert "! spec.toolConfigRef: there is no MCPToolConfig nowhere" in said.stdout


def test_a_mistake_is_exit_code_2_with_file_line_and_column(rig_namespace, fairway, tmp_path):
    (tmp_path / "bad.yaml").write_text(manifest({"imag": "x"}))
    for verb in ("plan", "apply", "delete"):
        said = fairway(verb, "-f", "bad.yaml")
        assert (said.returncode, said.stdout) == (2, "")
        assert said.stderr.startswith("bad.yaml:6:3  spec.imag: unknown field; did you mean spec.image?")
    elsewhere = fairway(
        "plan", "-f", "-", stdin=manifest(SOURCES["image a"]).replace("name: w", "namespace: x\n  name: w")
    )
    assert elsewhere.returncode == 2
    assert "says namespace x" in elsewhere.stderr


def test_what_the_api_server_refuses_is_named(rig_namespace, fairway):
    said = fairway("apply", "-f", "-", stdin="apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {x: 1}\n")
    assert said.returncode == 2
    assert "Traceback" not in said.stderr
    said = fairway("apply", "-f", "-", stdin="apiVersion: nowhere.example/v1\nkind: Thing\nmetadata: {name: a}\n")
    assert said.returncode == 2
    assert "has no kind Thing" in said.stderr


def test_objects_of_others_are_applied_too_and_their_fields_are_not_taken(rig_api, rig_namespace, fairway):
    text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: shared}\ndata: {ours: '1'}\n"
    assert fairway("apply", "-f", "-", stdin=text).stdout == "created    ConfigMap/shared\n"
    assert fairway("apply", "-f", "-", stdin=text).stdout == "unchanged  ConfigMap/shared\n"
    path = f"/api/v1/namespaces/{rig_namespace}/configmaps/shared"
    rig_api.api.merge(path, {"data": {"ours": "somebody's"}})
    refused = fairway("apply", "-f", "-", stdin=text)
    assert refused.returncode == 2
    assert "--force-conflicts" in refused.stderr
    assert fairway("apply", "-f", "-", "--force-conflicts", stdin=text).stdout == "changed    ConfigMap/shared\n"
    assert rig_api.api.get(path)["data"] == {"ours": "1"}


def test_delete_takes_the_children_with_it(operator, rig_api, rig_namespace, fairway):
    fairway("apply", "-f", "-", stdin=manifest(SOURCES["image a"]))
    deployment = f"/apis/apps/v1/namespaces/{rig_namespace}/deployments/weather"
    until("the Deployment", lambda: rig_api.api.find(deployment))
    assert fairway("delete", "weather").stdout == "deleted    MCPServer/weather\n"
    assert fairway("wait", "weather", "--for", "delete").returncode == 0
    until("garbage collection", lambda: rig_api.api.find(deployment) is None, seconds=30)
    assert fairway("delete", "-f", "-", stdin=manifest(SOURCES["image a"])).returncode == 1

"""What `fairway doctor` finds: every check has its fault, and finds nothing where all is well."""

from dataclasses import replace
from datetime import timedelta

import pytest

from fairway.api.crd import crds
from fairway.cli.checks import checks, findings
from fairway.cli.checks.facts import Cluster, Facts, Laptop, Machine, time_of
from fairway.controllers import access

NOW = time_of("2026-05-01T12:00:00Z")
LONG_AGO = "2026-05-01T11:00:00Z"
JUST_NOW = "2026-05-01T11:59:55Z"


def conditions(**given):
    """Type=(status, reason) or with a message."""
    made = []
    for name, (status, reason, *more) in given.items():
        message = more[0] if more else "what happened"
        made.append(
            {"type": name, "status": status, "reason": reason, "message": message, "lastTransitionTime": LONG_AGO}
        )
    return made


def server(name="a", *, spec=None, generation=1, tools=2, **given):
    given = {"Ready": ("True", "Ready"), "Degraded": ("False", "Healthy"), **given}
    return {
        "kind": "MCPServer",
        "metadata": {"namespace": "default", "name": name, "generation": generation, "creationTimestamp": LONG_AGO},
        "spec": spec or {"inlineTools": {"python": "x"}},
        "status": {"observedGeneration": 1, "conditions": conditions(**given), "tools": {"count": tools}},
    }


def not_ready(reason, message="what happened", **options):
    return server(Ready=("False", reason, message), **options)


def pod(restarts=0, ready=True):
    state = {"name": "server", "restartCount": restarts, "ready": ready, "state": {"running": {}}}
    return {
        "metadata": {"namespace": "default", "name": "a-x", "labels": {"fairway.dev/server": "a"}},
        "status": {"containerStatuses": [state]},
    }


def operator(replicas=2, ready=2, namespace="fairway-system"):
    return {
        "metadata": {"namespace": namespace, "name": "fairway-operator"},
        "spec": {"replicas": replicas},
        "status": {"readyReplicas": ready},
    }


def crd_with(**condition):
    made = next(iter(crds().values()))
    return {**made, "status": {"conditions": [condition]}}


NAME, WANTED = next((crd["metadata"]["name"], crd) for crd in crds().values())
MACHINE = Machine(now=NOW, programs={"uv": "uv 0.9", "npx": "10.1.0", "node": "v22.1.0"}, containers="docker")
CLUSTER = Cluster(
    title="a cluster",
    version=(1, 34),
    skew=0.4,
    client_certificate_until=NOW + timedelta(days=90),
    crds={NAME: crd_with(type="Established", status="True")},
    wanted_crds={NAME: WANTED},
    operators=(operator(),),
    lease={"spec": {"renewTime": "2026-05-01T11:59:58.123456Z"}},
    rules=tuple(access.cluster_rules()),
    wanted_rules=tuple(access.cluster_rules()),
    nodes=({"metadata": {"name": "n"}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}},),
    resource_metrics=True,
    certificates={"default/tls": NOW + timedelta(days=60)},
    ingress_classes=frozenset({"traefik"}),
)
LAPTOP = Laptop(version="1", own_version="1", newest_file=NOW)
GOOD_SPEC = {
    "image": "x",
    "autoscaling": {"minReplicas": 1},
    "ingress": {"enabled": True, "className": "traefik"},
    "auth": {"oidc": {}},
}
BUSY = (server(), server("b", spec=GOOD_SPEC), not_ready("Suspended"), not_ready("ScaledToZero"))
CONFIG = {
    "kind": "MCPToolConfig",
    "metadata": {"namespace": "default", "name": "c", "generation": 1, "creationTimestamp": LONG_AGO},
    "spec": {},
    "status": {"observedGeneration": 1, "conditions": conditions(Ready=("True", "Valid"))},
}
ON_LAPTOP = Facts(machine=MACHINE, laptop=LAPTOP, servers=BUSY, tool_configs=(CONFIG,), pods=(pod(),))
ON_CLUSTER = Facts(machine=MACHINE, cluster=CLUSTER, servers=BUSY, tool_configs=(CONFIG,), pods=(pod(restarts=1),))


def on_laptop(*servers, machine=None, **laptop):
    return replace(
        ON_LAPTOP,
        machine=replace(MACHINE, **machine or {}),
        laptop=replace(LAPTOP, **laptop),
        servers=servers or BUSY,
    )


def on_cluster(*servers, **cluster):
    return replace(ON_CLUSTER, cluster=replace(CLUSTER, **cluster), servers=servers or BUSY)


PYPI, NPM = {"package": {"pypi": "x"}}, {"package": {"npm": "x"}}
UNSEEN = {"metadata": {"name": "n"}, "status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}
WAITING_POD = {
    "metadata": {"name": "o"},
    "status": {"containerStatuses": [{"state": {"waiting": {"reason": "ImagePullBackOff", "message": "no image"}}}]},
}
FAULTS = {
    "open-files": (on_laptop(machine={"open_files": 256}), "256 files"),
    "disk-full": (on_laptop(machine={"free_bytes": 5 << 20}), "5 MiB"),
    "localhost": (on_laptop(machine={"localhost": ("127.0.1.1",)}), "127.0.1.1"),
    "http-proxy": (on_laptop(machine={"environment": {"http_proxy": "http://p:3128"}}), "NO_PROXY"),
    "uv-missing": (on_laptop(server(spec=PYPI), machine={"programs": {}}), "needs uv"),
    "npx-missing": (on_laptop(server(spec=NPM), machine={"programs": {}}), "needs npx"),
    "node-old": (on_laptop(server(spec=NPM), machine={"programs": {"npx": "6", "node": "v12.2.0"}}), "v12.2.0"),
    "container-runtime": (
        on_laptop(server(spec={"image": "x"}), machine={"containers": "", "containers_said": "docker does not work"}),
        "docker does not work",
    ),
    "state-directory": (on_laptop(writable=False), "cannot be written"),
    "up-silent": (on_laptop(running=False, holder="77"), "process 77"),
    "leftovers": (on_laptop(running=False, leftovers=(5, 6)), "5, 6"),
    "up-version": (on_laptop(version="0"), "is 0"),
    "ports-file": (on_laptop(ports_problem="cannot be read"), "ports.json"),
    "clock-set-back": (on_laptop(newest_file=NOW + timedelta(hours=1)), "3600 s"),
    "local-token": (on_laptop(token_problem="has expired"), "token has expired"),
    "up-errors": (on_laptop(errors=("boom",)), "boom"),
    "open-to-network": (on_laptop(listening_elsewhere=("port 8000 of all addresses",)), "port 8000"),
    "kubeconfig": (on_cluster(problem=("kubeconfig", "no context x")), "no context x"),
    "cluster-unreachable": (on_cluster(problem=("unreachable", "refused")), "refused"),
    "cluster-login": (on_cluster(problem=("login", "expired")), "expired"),
    "cluster-rights": (on_cluster(problem=("forbidden", "cannot list")), "cannot list"),
    "cluster-version": (on_cluster(version=(1, 27)), "1.27"),
    "clock-skew": (on_cluster(skew=-95.0), "95 s behind"),
    "client-certificate": (on_cluster(client_certificate_until=NOW - timedelta(days=1)), "has ended on 2026-04-30"),
    "crds-missing": (on_cluster(crds={NAME: None}), NAME),
    "crds-differ": (on_cluster(crds={NAME: {"spec": {"versions": []}}}), "other fields"),
    "crds-refused": (
        on_cluster(crds={NAME: crd_with(type="NamesAccepted", status="False", message="mcps is in use")}),
        "mcps is in use",
    ),
    "operator-missing": (on_cluster(operators=()), "no operator"),
    "operator-twice": (on_cluster(operators=(operator(), operator(namespace="other"))), "fairway-system, other"),
    "operator-down": (on_cluster(operators=(operator(ready=0),), operator_pods=(WAITING_POD,)), "no image"),
    "operator-lead": (on_cluster(lease={"spec": {"renewTime": "2026-05-01T11:50:00.0Z"}}), "600 s"),
    "operator-rights": (on_cluster(rules=tuple(access.cluster_rules()[:-1])), "create events"),
    "nodes": (on_cluster(nodes=(UNSEEN,)), "node n"),
    "autoscaling-metrics": (on_cluster(resource_metrics=False), "b: autoscaling"),
    "certificates": (on_cluster(certificates={"default/tls": NOW - timedelta(days=2)}), "ended on 2026-04-29"),
    "ingress-class": (on_cluster(ingress_classes=frozenset({"nginx"})), "which has nginx"),
    "server-spec": (on_laptop(not_ready("InlineToolsInvalid", "line 3")), "line 3"),
    "server-name": (on_cluster(not_ready("NameTaken", "Service a exists")), "Service a exists"),
    "server-tools": (on_laptop(not_ready("ToolConfigNotFound", "MCPToolConfig c")), "MCPToolConfig c"),
    "server-references": (on_cluster(not_ready("SecretMissing", "Secret s")), "Secret s"),
    "server-image": (on_cluster(not_ready("ImagePullBackOff")), "ImagePullBackOff"),
    "server-runtime": (on_cluster(not_ready("RuntimeNotFound", "no runtime x")), "no runtime x"),
    "server-package": (on_cluster(not_ready("PackageNotFetched", "no version 9")), "no version 9"),
    "server-crashes": (
        replace(on_laptop(not_ready("CrashLoopBackOff")), words={"default/a": ("one", "ModuleNotFoundError")}),
        "ModuleNotFoundError",
    ),
    "server-port": (on_laptop(not_ready("PortTaken", "port 7001")), "port 7001"),
    "server-handshake": (on_cluster(not_ready("NotMCP", "GET / answered a page")), "a page"),
    "server-policy": (on_laptop(not_ready("PolicyRejected", "route a")), "route a"),
    "server-scheduling": (on_cluster(not_ready("Unschedulable", "0/3 nodes")), "0/3 nodes"),
    "server-stuck": (on_cluster(not_ready("RollingOut", "waits for pods")), "waits for pods"),
    "status-old": (on_cluster(server(generation=4)), "newest generation"),
    "server-degraded": (on_cluster(server(Degraded=("True", "OOMKilled", "pod a-x"))), "pod a-x"),
    "policy-waits": (on_cluster(server(PolicyApplied=("False", "RollingOut", "1 of 2 proxies"))), "1 of 2"),
    "tools-unknown": (on_laptop(server(ToolsDiscovered=("True", "UnknownTool", "serch"))), "serch"),
    "tools-none": (on_laptop(server(tools=0, spec={"image": "x", "toolConfigRef": {"name": "c"}})), "no tool"),
    "server-flaps": (replace(ON_CLUSTER, pods=(pod(restarts=7),)), "7 times"),
    "loopback-only": (
        replace(
            on_cluster(not_ready("NotListening")),
            words={"default/a": ("Uvicorn running on http://127.0.0.1:8080 (Press CTRL+C to quit)",)},
        ),
        "127.0.0.1:8080",
    ),
    "wrong-port": (
        replace(on_cluster(not_ready("NotListening")), words={"default/a": ("server listening on port 3000",)}),
        "listens on 3000",
    ),
    "open-doors": (on_cluster(server(spec={"image": "x", "ingress": {"enabled": True}})), "spec.ingress"),
    "pod-security": (on_cluster(server(PodSecurity=("False", "NotRestricted", "runs as root"))), "runs as root"),
    "tool-configs": (
        replace(
            ON_CLUSTER,
            tool_configs=({**CONFIG, "status": {"conditions": conditions(Ready=("False", "ToolConflict", "two x"))}},),
        ),
        "two x",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_found_named_and_comes_with_something_to_do(name):
    facts, words = FAULTS[name]
    found = [finding for finding in findings(facts) if finding.check == name]
    assert found, [f.check for f in findings(facts)]
    assert any(words in finding.what for finding in found)
    assert all(finding.do and "{" not in finding.do for finding in found)


@pytest.mark.parametrize("name", FAULTS)
def test_without_its_check_a_fault_goes_unfound(name):
    facts, _ = FAULTS[name]
    others = [check for check in checks() if check.name != name]
    assert name not in {finding.check for finding in findings(facts, others)}


def test_every_check_has_a_fault_and_there_are_enough_of_them():
    names = [check.name for check in checks()]
    assert len(set(names)) == len(names) >= 25
    assert set(names) == set(FAULTS)


@pytest.mark.parametrize("facts", [ON_LAPTOP, ON_CLUSTER, Facts(machine=MACHINE)], ids=["laptop", "cluster", "nothing"])
def test_where_all_is_well_nothing_is_found(facts):
    assert list(findings(facts)) == []


def test_what_has_just_begun_is_given_time():
    fresh = not_ready("RollingOut")
    fresh["status"]["conditions"][0]["lastTransitionTime"] = JUST_NOW
    assert list(findings(on_cluster(fresh))) == []


def test_what_to_do_can_be_typed_as_it_stands():
    elsewhere = not_ready("NotListening")
    elsewhere["metadata"]["namespace"] = "team"
    (found,) = findings(on_cluster(elsewhere))
    assert found.what.startswith("team/a: ")
    assert found.do.endswith("fairway logs a -n team")


@pytest.mark.parametrize(
    ("said", "port"),
    [
        ("Uvicorn running on http://0.0.0.0:3000 (Press CTRL+C to quit)", "3000"),
        ("Serving HTTP on 0.0.0.0 port 3000 (http://0.0.0.0:3000/) ...", "3000"),
        ("Serving HTTP on 127.0.0.1 port 8080 (http://127.0.0.1:8080/) ...", None),
        ("started in 12.5 s", None),
    ],
)
def test_a_port_is_read_from_what_a_server_says_and_no_address_is_taken_for_one(said, port):
    facts = replace(on_cluster(not_ready("NotListening")), words={"default/a": (said,)})
    found = [f.what for f in findings(facts) if f.check == "wrong-port"]
    assert found == ([f"a says that it listens on {port}"] if port else [])


def test_a_reason_that_no_family_has_is_found_all_the_same():
    found = list(findings(on_laptop(not_ready("SomethingNew", "words"))))
    assert [f.check for f in found] == ["server-stuck"]
    assert "words" in found[0].what


def test_a_cluster_that_cannot_be_asked_is_one_finding():
    empty = replace(
        ON_CLUSTER, cluster=Cluster(problem=("unreachable", "refused")), servers=(), pods=(), tool_configs=()
    )
    assert [f.check for f in findings(empty)] == ["cluster-unreachable"]

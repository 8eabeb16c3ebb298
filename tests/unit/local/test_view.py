"""Rows, examples and the table."""

import pytest

from fairway.local.view import EXAMPLE_CALL, ExampleCall, InvalidExample, command_of, example_of, rows, table


def server(name="hello", *, namespace="default", spec=None, status=None, annotation=None, generation=1):
    annotations = {EXAMPLE_CALL: annotation} if annotation is not None else {}
    return {
        "metadata": {"name": name, "namespace": namespace, "generation": generation, "annotations": annotations},
        "spec": spec or {"inlineTools": {"python": ""}},
        "status": status or {},
    }


def ready(**more):
    return {"observedGeneration": 1, "phase": "Ready", "conditions": [condition("True", "Ready")], **more}


def condition(status, reason, message=""):
    return {"type": "Ready", "status": status, "reason": reason, "message": message}


def shown(*servers, log=""):
    return rows(servers, address_of=lambda _: "127.0.0.1:7001", log_of=lambda _: log)


def test_a_ready_server_has_no_trouble():
    (row,) = shown(server(status=ready(tools={"count": 2})))
    assert row.ready
    assert row.trouble == ""
    assert (row.tools, row.url) == (2, "http://127.0.0.1:7001/mcp")


@pytest.mark.parametrize("ending", ["http://{}/sse", "https://{}/mcp"])
def test_a_server_has_the_scheme_and_path_here_that_it_has_in_a_cluster(ending):
    (row,) = shown(server(status=ready(url=ending.format("hello.default.svc.cluster.local:8080"))))
    assert row.url == ending.format("127.0.0.1:7001")


def test_a_status_of_an_older_generation_does_not_count():
    (row,) = shown(server(status=ready(), generation=2))
    assert row.phase == "Pending"
    assert not row.ready


@pytest.mark.parametrize(
    ("reason", "hopeless"),
    [("CrashLoopBackOff", False), ("HandshakePending", False), ("InvalidSpec", True), ("NeedsContainerRuntime", True)],
)
def test_only_what_an_edit_alone_can_cure_is_hopeless(reason, hopeless):
    status = {"observedGeneration": 1, "phase": "Failed", "conditions": [condition("False", reason, "why")]}
    (row,) = shown(server(status=status))
    assert row.hopeless is hopeless
    assert row.trouble == "why"


def test_servers_of_the_default_namespace_go_by_their_bare_name():
    assert [row.title for row in shown(server("b"), server("a", namespace="x"), server("a"))] == ["a", "b", "x/a"]


def test_the_source_says_what_it_is_and_whether_it_is_filtered():
    specs = [{"image": "x:1"}, {"inlineTools": {"python": ""}, "toolConfigRef": {"name": "c"}}]
    assert [row.source for row in shown(*(server(f"s{i}", spec=s) for i, s in enumerate(specs)))] == [
        "image x:1",
        "inline tools, filtered",
    ]


def test_an_example_is_read_and_shown_as_somebody_would_type_it():
    obj = server(annotation='{"tool": "add", "arguments": {"a": 2, "b": "x", "c": true}, "expect": "5"}')
    assert example_of(obj) == ExampleCall("add", {"a": 2, "b": "x", "c": True}, "5")
    assert command_of(obj) == "fairway call hello add a=2 b=x c=true"


def test_arguments_that_a_shell_would_mangle_are_shown_as_json():
    obj = server(annotation='{"tool": "say", "arguments": {"text": "hello world"}}', namespace="x")
    assert command_of(obj) == """fairway call x/hello say --json '{"text": "hello world"}'"""


@pytest.mark.parametrize(
    ("annotation", "words"),
    [
        ("{", "is not JSON"),
        ("[]", "expected"),
        ("{}", "expected"),
        ('{"tool": "a", "args": {}}', "unknown key args"),
        ('{"tool": "a", "arguments": []}', "arguments must be an object"),
        ('{"tool": "a", "expect": 5}', "expect a string"),
    ],
)
def test_an_example_that_cannot_be_read_says_why(annotation, words):
    with pytest.raises(InvalidExample, match=words):
        example_of(server(annotation=annotation))
    assert command_of(server(annotation=annotation)) == ""


def test_a_server_without_example_has_none():
    assert example_of(server()) is None


def test_the_table_lines_up_and_says_what_is_wrong_below_the_row():
    failed = {"observedGeneration": 1, "phase": "Failed", "conditions": [condition("False", "CrashLoopBackOff", "why")]}
    assert table(
        shown(server("a", status=failed), server("longer", status=ready(tools={"count": 1})), log="l.log")
    ) == [
        "NAME    SOURCE        PROXY       TOOLS  STATUS  URL",
        "a       inline tools  standalone         Failed  http://127.0.0.1:7001/mcp",
        "    why",
        "    log: l.log",
        "longer  inline tools  standalone  1      Ready   http://127.0.0.1:7001/mcp",
    ]

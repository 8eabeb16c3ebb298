"""What each principal may do, how often Cedar is asked, and that nothing that goes wrong is a yes."""

import json
from typing import Any

import cedarpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairway.mcp.actions import RULES, Access
from fairway.proxy.answers import Refusal
from fairway.proxy.middleware import authorization
from fairway.proxy.middleware.authorization import MAX_VALUES, Authorizer
from fairway.proxy.middleware.cedar import Book, InvalidPolicies, read_policies
from fairway.proxy.middleware.principal import Principal, anonymous


def authorizer(*texts: str, entities: list[dict[str, Any]] | None = None, **more: Any) -> Authorizer:
    return Authorizer(Book(read_policies([("p", "\n".join(texts))]), entities or ()), **more)


def client(subject: str = "alice", *groups: str, **claims: Any) -> Principal:
    return Principal(subject, "https://idp", groups, frozenset({"mcp:tools"}), claims)


def call(who: Authorizer, principal: Principal, tool: str, arguments: Any = None) -> Refusal | None:
    params = {} if arguments is None else {"arguments": json.dumps(arguments).encode()}
    return who.check(principal, "tools/call", params, tool)


def allowed(*args: Any) -> bool:
    return call(*args) is None


CALL = 'action == Action::"call_tool"'


# who may do what


def test_nothing_is_allowed_that_no_policy_permits():
    for who in (authorizer(), authorizer("forbid(principal, action, resource);")):
        said = call(who, client(), "a")
        assert said is not None
        assert (said.status, said.code) == (403, 403)
        assert said.message == "tool a is not allowed for this client"


def test_a_policy_names_client_group_claim_and_tool():
    who = authorizer(
        f'permit(principal == Client::"alice", {CALL}, resource == Tool::"a");',
        f'permit(principal in Group::"ops", {CALL}, resource == Tool::"b");',
        f'permit(principal, {CALL}, resource == Tool::"c")'
        " when { context.claims has level && context.claims.level > 3 };",
        f'permit(principal, {CALL}, resource == Tool::"d") when {{ principal.groups.contains("ops") }};',
        f'permit(principal, {CALL}, resource == Tool::"e") when {{ principal.scopes.contains("mcp:tools") }};',
        f'permit(principal, {CALL}, resource == Tool::"f") when {{ principal.issuer == "https://idp" }};',
        f'permit(principal, {CALL}, resource == Tool::"g") when {{ principal.subject == "carol" }};',
    )
    everybody = [client("alice"), client("bob", "ops"), client("carol", level=4), client("dave", level=3)]
    may = {p.subject: "".join(t for t in "abcdefgh" if allowed(who, p, t)) for p in everybody}
    assert may == {"alice": "aef", "bob": "bdef", "carol": "cefg", "dave": "ef"}


def test_forbid_wins():
    who = authorizer("permit(principal, action, resource);", f'forbid(principal, {CALL}, resource == Tool::"rm");')
    assert allowed(who, client(), "ls")
    assert not allowed(who, client(), "rm")


def test_the_reason_is_for_the_audit_log_and_not_for_the_client():
    who = authorizer(
        'permit(principal, action, resource); @id("no rm") forbid(principal, action, resource == Tool::"rm");'
    )
    said = call(who, client(), "rm")
    assert said is not None
    assert said.detail == "no rm"
    assert "no rm" not in said.message


def test_a_name_is_a_name_and_never_syntax():
    who = authorizer(f'permit(principal == Client::"alice", {CALL}, resource == Tool::"a");')
    for name in ('a"; permit(principal, action, resource); //', "a\n", "A", "a ", "", "\0", "a\\u0061", "Tool::a"):
        assert not allowed(who, client(), name)
    for subject in ('alice" || true', "alice\n", "Alice", "alice\0"):
        assert not allowed(who, client(subject), "a")


def test_prompts_resources_completion_and_subscriptions_have_actions_of_their_own():
    who = authorizer(
        'permit(principal, action == Action::"get_prompt", resource == Prompt::"x");',
        'permit(principal, action == Action::"read_resource", resource == Resource::"file:///a");',
        'permit(principal, action == Action::"complete", resource == Prompt::"x");',
        'permit(principal, action == Action::"subscribe", resource == Resource::"file:///a");',
    )
    me = client()

    def ask(method: str, **params: Any) -> int | None:
        said = who.check(me, method, {name: json.dumps(value).encode() for name, value in params.items()})
        return None if said is None else said.status

    assert ask("prompts/get", name="x") is None
    assert ask("prompts/get", name="y") == 403
    assert ask("tools/call", name="x") == 403
    assert ask("resources/read", uri="file:///a") is None
    assert ask("resources/read", uri="file:///b") == 403
    assert ask("completion/complete", ref={"type": "ref/prompt", "name": "x"}) is None
    assert ask("completion/complete", ref={"type": "ref/resource", "uri": "x"}) == 403
    assert ask("resources/subscribe", uri="file:///a") is None
    assert (
        ask("subscriptions/listen", notifications={"resourceSubscriptions": ["file:///a"], "toolsListChanged": True})
        is None
    )
    assert ask("subscriptions/listen", notifications={"resourceSubscriptions": ["file:///a", "file:///b"]}) == 403
    assert ask("subscriptions/listen", notifications={"toolsListChanged": True}) is None
    assert ask("subscriptions/listen", notifications={"somethingNew": True}) == 400
    assert ask("subscriptions/listen") == 400
    assert ask("subscriptions/listen", notifications={"resourceSubscriptions": ["file:///a"] * 300}) == 400
    assert ask("prompts/get") == 400
    assert ask("prompts/get", name=["x"]) == 400


def test_the_kinds_of_completion_share_no_remembered_answer():
    who = authorizer('permit(principal, action == Action::"complete", resource == Prompt::"x");')
    me = client()
    assert who.check(me, "completion/complete", {"ref": b'{"type":"ref/prompt","name":"x"}'}) is None
    said = who.check(me, "completion/complete", {"ref": b'{"type":"ref/resource","uri":"x"}'})
    assert said is not None


def test_every_open_method_is_open_and_every_unknown_one_closed():
    who = authorizer()
    for method, rule in RULES.items():
        if rule.access in (Access.OPEN, Access.LIST):
            assert who.check(client(), method, None) is None
    for method in (
        "tools/delete",
        "sampling/createMessage",
        "elicitation/create",
        "roots/list",
        "tasks/list",
        "TOOLS/CALL",
        "",
    ):
        said = who.check(client(), method, None)
        assert said is not None
        assert (said.status, said.code) == (404, -32601)


def test_a_task_is_its_creators_and_nobodys_without_anybody_who_knows():
    params = {"taskId": b'"t1"'}
    said = authorizer("permit(principal, action, resource);").check(client(), "tasks/get", params)
    assert said is not None
    assert said.status == 404
    who = authorizer(owns=lambda principal, task: (principal.subject, task) == ("alice", "t1"))
    for method in ("tasks/get", "tasks/result", "tasks/update", "tasks/cancel"):
        assert who.check(client("alice"), method, params) is None
        assert who.check(client("bob"), method, params) is not None
        assert who.check(client("alice"), method, {"taskId": b'"t2"'}) is not None
        assert who.check(client("alice"), method, {}) is not None
    assert who.check(client("bob"), "subscriptions/listen", {"notifications": b'{"taskIds":["t1"]}'}) is not None
    assert who.check(client("alice"), "subscriptions/listen", {"notifications": b'{"taskIds":["t1"]}'}) is None


def test_those_without_a_token_are_a_client_of_their_own():
    who = authorizer(f'permit(principal == Client::"anonymous", {CALL}, resource == Tool::"a");')
    assert allowed(who, anonymous(), "a")
    assert not allowed(who, client(), "a")


# entities


def test_tools_clients_and_groups_can_be_grouped_in_a_file():
    def entity(kind: str, name: str, *parents: tuple[str, str], **attrs: Any) -> dict[str, Any]:
        uids = [{"type": k, "id": n} for k, n in parents]
        return {"uid": {"type": kind, "id": name}, "attrs": attrs, "parents": uids}

    who = authorizer(
        'permit(principal in Group::"staff", action, resource in Tool::"readonly");',
        'permit(principal, action, resource == Tool::"vault") when { principal has level && principal.level > 3 };',
        entities=[
            entity("Tool", "ls", ("Tool", "readonly")),
            entity("Group", "eng", ("Group", "staff")),
            entity("Client", "carol", ("Group", "eng"), level=4, issuer="made up"),
        ],
    )
    assert allowed(who, client("alice", "eng"), "ls")
    assert not allowed(who, client("alice", "eng"), "rm")
    assert not allowed(who, client("bob", "ops"), "ls")
    assert allowed(who, client("carol"), "ls")
    assert allowed(who, client("carol"), "vault")
    assert allowed(who, client("carol", "ops"), "vault")
    assert not allowed(who, client("alice", "eng"), "vault")


def test_actions_can_be_grouped_in_a_file():
    def action(name: str, *parents: str) -> dict[str, Any]:
        return {
            "uid": {"type": "Action", "id": name},
            "attrs": {},
            "parents": [{"type": "Action", "id": parent} for parent in parents],
        }

    text = 'permit(principal, action in Action::"use", resource);'
    assert not allowed(authorizer(text), client(), "a")
    grouped = authorizer(text, entities=[action("call_tool", "use"), action("get_prompt")])
    assert allowed(grouped, client(), "a")
    assert grouped.check(client(), "prompts/get", {"name": b'"x"'}) is not None
    listed = authorizer(
        'permit(principal, action in [Action::"x", Action::"use"], resource);', entities=[action("call_tool", "use")]
    )
    assert allowed(listed, client(), "a")


def test_resources_of_one_kind_can_be_in_groups_of_another():
    def member(name: str, *parents: tuple[str, str]) -> dict[str, Any]:
        return {
            "uid": {"type": "Tool", "id": name},
            "attrs": {},
            "parents": [{"type": kind, "id": parent} for kind, parent in parents],
        }

    who = authorizer(
        'permit(principal, action, resource in ToolSet::"safe");',
        'permit(principal, action, resource is Tool in ToolSet::"more");',
        'permit(principal, action, resource in Tool::"itself");',
        entities=[member("ls", ("ToolSet", "safe")), member("cat", ("ToolSet", "more"))],
    )
    names = ["ls", "cat", "rm", "itself", "safe", "more"]
    assert who.visible(client(), "tools/list", names) == [True, True, False, True, False, False]
    assert [allowed(who, client(), name) for name in names] == [True, True, False, True, False, False]


def test_the_token_is_believed_over_the_file():
    attrs = {"uid": {"type": "Client", "id": "alice"}, "attrs": {"groups": ["admin"], "issuer": "x"}, "parents": []}
    who = authorizer(
        'permit(principal, action, resource) when { principal.groups.contains("admin") };', entities=[attrs]
    )
    assert not allowed(who, client("alice"), "a")


# arguments


LIMIT = f'permit(principal, {CALL}, resource == Tool::"pay") when {{ context.arguments.amount < 100 }};'


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (b'{"amount":5}', None),
        (b'{"amount":5.0}', None),
        (b'{"amount":5e1}', None),
        (b'{"amount":99,"note":"x"}', None),
        (b'{"amount":100}', 403),
        (b'{"amount":1e2}', 403),
        (b'{"amount":99.5}', 403),
        (b'{"amount":"5"}', 403),
        (b'{"amount":null}', 403),
        (b'{"amount":[5]}', 403),
        (b'{"amount":{"value":5}}', 403),
        (b'{"amount":18446744073709551617}', 403),
        (b'{"amount":1e400}', 403),
        (b'{"amount":-1e300}', 403),
        (b"{}", 403),
        (b"null", 403),
        (None, 403),
        (b'{"amount":5,"amount":500}', 400),
        (b'{"amount":500,"amount":5}', 400),
        (b'{"amount":5,"Amount":500}', 400),
        (b'{"Amount":500}', 400),
        (b'{"AMOUNT":5}', 400),
        (b'{"amount":NaN}', 400),
        (b'{"amount":{"__entity":{"type":"Tool","id":"pay"}}}', 400),
        (b'{"amount":{"__extn":{"fn":"decimal","arg":"1.0"}}}', 400),
        (b'{"amount":{"x":[{"__expr":"true"}]}}', 400),
        (b'{"amount":"\\ud800"}', 400),
        (b"[5]", 400),
        (b'"amount"', 400),
        (b"{", 400),
        (b'{"amount":' + b"[" * 400 + b"]" * 400 + b"}", 403),
        (b'{"amount":' + b"[" * 100000 + b"]" * 100000 + b"}", 400),
    ],
)
def test_a_policy_on_an_argument_sees_what_the_server_will_see(raw, status):
    who = authorizer(LIMIT)
    for _ in range(2):
        said = who.check(client(), "tools/call", {} if raw is None else {"arguments": raw}, "pay")
        assert (None if said is None else said.status) == status, said


@pytest.mark.parametrize("value", [b"true", b"null", b"1.25", b"1e999", b"[]", b"{}", b'""', b"18446744073709551617"])
def test_no_value_makes_an_argument_invisible(value):
    who = authorizer(
        "permit(principal, action, resource);",
        f"forbid(principal, {CALL}, resource) when {{ context.arguments has force }};",
    )
    assert who.check(client(), "tools/call", {"arguments": b'{"force":' + value + b"}"}, "rm") is not None
    assert who.check(client(), "tools/call", {"arguments": b'{"x":1}'}, "rm") is None


@pytest.mark.parametrize("name", ["Force", "FORCE", "\u017fudo", "Sudo"])
def test_no_spelling_makes_an_argument_invisible_to_policies_that_some_server_finds(name):
    who = authorizer(
        "permit(principal, action, resource);",
        f"forbid(principal, {CALL}, resource) when {{ context.arguments has force || context.arguments has sudo }};",
    )
    assert call(who, client(), "rm", {name: True}) is not None
    assert call(who, client(), "rm", {"forced": True}) is None


def test_arguments_of_very_many_values_are_not_judged_and_long_texts_are():
    who = authorizer(LIMIT)
    many = b'{"amount":5,"x":[' + b"{}," * MAX_VALUES + b"{}]}"
    said = who.check(client(), "tools/call", {"arguments": many}, "pay")
    assert said is not None
    assert said.status == 400
    assert (
        who.check(client(), "tools/call", {"arguments": b'{"amount":5,"x":"' + b"a" * 4_000_000 + b'"}'}, "pay") is None
    )


@pytest.mark.parametrize("raw", [b'{"n":3}', b'{"n":3.0}', b'{"n":3e0}', b'{"n":30E-1}'])
def test_a_number_is_the_same_however_it_is_written(raw):
    who = authorizer(
        "permit(principal, action, resource);",
        f"forbid(principal, {CALL}, resource) when {{ context.arguments.n == 3 }};",
    )
    assert who.check(client(), "tools/call", {"arguments": raw}, "x") is not None


def test_a_fraction_can_be_compared_as_a_decimal():
    who = authorizer(f'permit(principal, {CALL}, resource) when {{ context.arguments.x.lessThan(decimal("1.5")) }};')
    assert allowed(who, client(), "a", {"x": 1.25})
    assert not allowed(who, client(), "a", {"x": 1.75})


def test_an_argument_that_no_policy_reads_may_be_anything():
    who = authorizer(LIMIT)
    assert allowed(who, client(), "pay", {"amount": 5, "x": {"__entity": {"type": "A", "id": "b"}}, "y": None})


def test_claims_that_policies_cannot_hold_are_a_no_where_they_are_read_and_nothing_elsewhere():
    who = authorizer(
        f'permit(principal, {CALL}, resource == Tool::"a") when {{ context.claims.ok }};',
        f'permit(principal, {CALL}, resource == Tool::"b") when {{ context.claims.odd == {{}} }};',
    )
    me = client(ok=True, odd={"__entity": {"type": "Client", "id": "root"}}, rate=1.25, none=None)
    assert allowed(who, me, "a")
    assert not allowed(who, me, "b")


# errors


def test_a_policy_that_permits_and_fails_permits_nothing_and_hinders_nobody_else():
    who = authorizer(
        f"permit(principal, {CALL}, resource) when {{ context.claims.admin == true }};",
        f'permit(principal, {CALL}, resource == Tool::"a");',
    )
    assert allowed(who, client(), "a")
    assert not allowed(who, client(), "b")
    assert allowed(who, client(admin=True), "b")
    assert who.counts.errors == 2


def test_a_policy_that_forbids_and_fails_forbids():
    who = authorizer(
        "permit(principal, action, resource);",
        '@id("blocked") forbid(principal, action, resource) when { context.claims.blocked == true };',
    )
    assert allowed(who, client(blocked=False), "a")
    assert not allowed(who, client(blocked=True), "a")
    said = call(who, client(), "a")
    assert said is not None
    assert "`blocked`" in said.detail
    assert who.visible(client(), "tools/list", ["a"]) == [False]
    assert who.counts.errors == 2


def test_whatever_cedar_raises_is_a_no(monkeypatch):
    who = authorizer("permit(principal, action, resource);")

    def broken(*_args: object) -> object:
        raise ValueError("out of order")

    monkeypatch.setattr(cedarpy, "is_authorized", broken)
    said = call(who, client(), "a")
    assert said is not None
    assert "out of order" in said.detail
    assert "out of order" not in said.message
    assert who.counts.errors == 1


def test_a_broken_text_changes_nothing_that_is_in_force():
    who = authorizer(f'permit(principal, {CALL}, resource == Tool::"a");')
    with pytest.raises(InvalidPolicies):
        who.replace(Book(read_policies([("p", "permit(principal, action, resource)")])))
    assert allowed(who, client(), "a")
    assert not allowed(who, client(), "b")


# what is remembered


def test_cedar_is_asked_once_for_what_cannot_change():
    who = authorizer(f'permit(principal, {CALL}, resource == Tool::"a");')
    me = client()
    for _ in range(10):
        assert allowed(who, me, "a")
        assert not allowed(who, me, "b")
    assert who.counts.evaluated == 2
    assert allowed(who, client(), "a"), "another token of the same client"
    assert who.counts.evaluated == 3


def test_cedar_is_asked_for_each_call_where_arguments_count():
    who = authorizer(LIMIT, f'permit(principal, {CALL}, resource == Tool::"a");')
    me = client()
    assert [allowed(who, me, "pay", {"amount": n}) for n in (1, 1000, 1, 1000)] == [True, False, True, False]
    assert who.counts.evaluated == 4
    for _ in range(3):
        assert allowed(who, me, "a")
    assert who.counts.evaluated == 5


def test_names_that_no_policy_knows_cost_one_question_however_many_there_are():
    who = authorizer(
        f'permit(principal in Group::"ops", {CALL}, resource);', f'forbid(principal, {CALL}, resource == Tool::"rm");'
    )
    me = client("bob", "ops")
    assert all(who.visible(me, "tools/list", [f"tool{n}" for n in range(500)]))
    assert who.counts.evaluated == 1
    assert all(allowed(who, me, f"tool{n}") for n in range(500))
    assert who.counts.evaluated == 2
    said = [call(who, client(), name) for name in ("x", "y")]
    assert [one.message for one in said if one] == [
        "tool x is not allowed for this client",
        "tool y is not allowed for this client",
    ]


def test_names_are_told_apart_where_a_policy_looks_at_the_resource():
    who = authorizer(f'permit(principal, {CALL}, resource) when {{ resource == Tool::"a" }};')
    assert allowed(who, client(), "a")
    assert not allowed(who, client(), "b")
    assert who.visible(client(), "tools/list", ["b", "a", "c"]) == [False, True, False]


def test_other_policies_make_everything_new():
    who = authorizer(f'permit(principal, {CALL}, resource == Tool::"a");')
    me = client()
    assert allowed(who, me, "a")
    assert who.visible(me, "tools/list", ["a", "b"]) == [True, False]
    who.replace(Book(read_policies([("p", f'permit(principal, {CALL}, resource == Tool::"b");')])))
    assert not allowed(who, me, "a")
    assert who.visible(me, "tools/list", ["a", "b"]) == [False, True]
    assert who.generation == 1


def test_memory_is_bounded(monkeypatch):
    monkeypatch.setattr(authorization, "MAX_PRINCIPALS", 4)
    monkeypatch.setattr(authorization, "MAX_DECISIONS", 4)
    who = authorizer(LIMIT)
    everybody = [client(str(n)) for n in range(10)]
    for me in everybody:
        for n in range(10):
            call(who, me, f"t{n}")
        who.visible(me, "tools/list", [f"t{n}" for n in range(10)])
    assert list(who._sights) == everybody[-4:]
    assert all(len(s.decisions) <= 4 and len(s.visible) <= 4 for s in who._sights.values())
    said = call(who, everybody[0], "x" * 5000)
    assert said is not None
    assert said.status == 400
    assert who.visible(everybody[0], "tools/list", ["x" * 5000]) == [False]


# lists


def test_a_list_shows_what_may_be_used_and_what_may_be_used_with_the_right_arguments():
    who = authorizer(
        LIMIT,
        f'permit(principal, {CALL}, resource == Tool::"a");',
        f'permit(principal, {CALL}, resource == Tool::"b")'
        ' when { principal in Group::"ops" && context.arguments.x == 1 };',
        f'permit(principal, {CALL}, resource == Tool::"c") unless {{ context.arguments has force }};',
        f'forbid(principal, {CALL}, resource == Tool::"a") when {{ context.arguments.path like "/etc/*" }};',
        f'permit(principal, {CALL}, resource == Tool::"d") when {{ context.arguments.x == 1 }};',
        f'forbid(principal, {CALL}, resource == Tool::"d") when {{ principal in Group::"guests" }};',
    )
    names = ["a", "b", "c", "d", "e", "pay"]
    assert who.visible(client(), "tools/list", names) == [True, False, True, True, False, True]
    assert who.visible(client("bob", "ops"), "tools/list", names) == [True, True, True, True, False, True]
    assert who.visible(client("eve", "guests"), "tools/list", names) == [True, False, True, False, False, True]


@pytest.mark.parametrize(
    ("condition", "shown"),
    [
        ("when { context.claims.on && context.arguments.x == 1 }", True),
        ("when { context.claims.off && context.arguments.x == 1 }", False),
        ("when { context.claims.off || context.arguments.x == 1 }", True),
        ("when { (context.arguments.x == 1 && context.claims.off) && context.claims.on }", False),
        ("unless { context.claims.on || context.arguments.x == 1 }", False),
        ("unless { context.claims.off || context.arguments.x == 1 }", True),
        ("unless { context.claims.on && context.arguments.x == 1 }", True),
        ("unless { context.arguments.x == 1 } when { context.claims.off }", False),
        ("when { context.arguments.x == 1 } when { context.claims.on }", True),
        ("when { if context.claims.on then context.arguments.x == 1 else false }", True),
    ],
)
def test_a_condition_on_arguments_counts_as_met_in_a_list_and_the_rest_as_it_is(condition, shown):
    who = authorizer(f"permit(principal, {CALL}, resource) {condition};")
    assert who.visible(client(on=True, off=False), "tools/list", ["a"]) == [shown]


def test_a_list_shows_what_is_allowed_also_where_one_policy_fails_and_another_forbids_some_arguments():
    who = authorizer(
        f"permit(principal, {CALL}, resource);",
        f"permit(principal, {CALL}, resource) when {{ context.claims.missing }};",
        f"forbid(principal, {CALL}, resource) when {{ context.arguments.n == 1 }};",
    )
    assert call(who, client(), "a", {"n": 0}) is None
    assert who.visible(client(), "tools/list", ["a"]) == [True]


def test_prompts_and_resources_are_filtered_by_what_they_are_used_for():
    who = authorizer(
        'permit(principal, action == Action::"get_prompt", resource == Prompt::"x");',
        'permit(principal, action == Action::"read_resource", resource == Resource::"file:///{path}");',
    )
    assert who.visible(client(), "prompts/list", ["x", "y"]) == [True, False]
    assert who.visible(client(), "resources/templates/list", ["file:///{path}", "x"]) == [True, False]
    with pytest.raises(ValueError, match="not a list"):
        who.visible(client(), "tools/call", ["x"])


tools = st.sampled_from(["a", "b", "c"])
resources = st.just("resource") | tools.map(lambda tool: f'resource == Tool::"{tool}"')
conditions = st.sampled_from(
    [
        "true",
        "context.claims.x",
        "context.arguments.n == 1",
        'principal in Group::"g"',
        'resource == Tool::"b"',
        "context.arguments has m",
    ]
)
texts = st.lists(
    st.tuples(
        st.sampled_from(["permit", "permit", "forbid"]), resources, st.sampled_from(["when", "unless"]), conditions
    ).map(lambda p: f"{p[0]}(principal, {CALL}, {p[1]}) {p[2]} {{ {p[3]} }};"),
    max_size=5,
)
arguments = st.fixed_dictionaries({}, optional={"n": st.integers(0, 2), "m": st.booleans()})
calls = st.lists(st.tuples(tools, arguments), max_size=12)


@settings(max_examples=150, deadline=None)
@given(texts, st.fixed_dictionaries({}, optional={"x": st.booleans()}), st.booleans(), calls)
def test_what_is_remembered_never_differs_from_asking_anew(policies, claims, grouped, asked):
    me = client("alice", *(["g"] if grouped else []), **claims)
    remembers = authorizer(*policies)
    for tool, given_arguments in asked:
        fresh = call(authorizer(*policies), me, tool, given_arguments)
        assert (call(remembers, me, tool, given_arguments) is None) == (fresh is None)
        if fresh is None:
            assert remembers.visible(me, "tools/list", [tool]) == [True], "allowed, and not in the list"

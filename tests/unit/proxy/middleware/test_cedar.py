"""Policies are read whole or not at all, and a slice of them always says what all of them say."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import cedarpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairway.api import policy
from fairway.proxy.middleware.cedar import (
    EVERYTHING,
    MAX_DEPTH,
    MAX_OPERATORS,
    Book,
    InvalidPolicies,
    Reads,
    expression_reads,
    load,
    read_entities,
    read_policies,
)


def reads(condition: str) -> Reads:
    (one,) = read_policies([("p", f"permit(principal, action, resource) when {{ {condition} }};")])
    return one.reads


NAMES = frozenset


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("true", Reads()),
        ('principal.groups.contains("a")', Reads()),
        ('principal in Group::"a"', Reads()),
        ("context.claims.admin", Reads(NAMES({"admin"}))),
        ('context["claims"]["a b"] like "x*"', Reads(NAMES({"a b"}))),
        ("context.claims has realm && context.claims.realm.x == 1", Reads(NAMES({"realm"}))),
        ("context.claims.realm has x", Reads(NAMES({"realm"}))),
        ("context has claims", Reads(claims=None)),
        ('context.claims == {a: 1} || context.claims.b == "x"', Reads(claims=None)),
        ("context.arguments.x < 3", Reads(arguments=NAMES({"x"}))),
        ("context.arguments.a.b == 1 && context.arguments has c", Reads(arguments=NAMES({"a", "c"}))),
        ("context has arguments.x.y", Reads(arguments=None)),
        ("context.arguments has x.y", Reads(arguments=NAMES({"x"}))),
        ("[context.arguments].contains({})", Reads(arguments=None)),
        ("context == {}", EVERYTHING),
        ("{x: context}.x.arguments == 1", EVERYTHING),
        ('if context.claims.a then resource == Tool::"x" else true', Reads(NAMES({"a"}), resource=True)),
        ("resource.owner == principal", Reads(resource=True)),
        ("principal.manages.contains(resource)", Reads(resource=True)),
        ('resource is Tool in Tool::"g"', Reads(resource=True)),
        ("context.time < 3", Reads()),
        ('ip(context.arguments.ip).isInRange(ip("10.0.0.0/8"))', Reads(arguments=NAMES({"ip"}))),
        ('decimal("1.0").lessThan(context.arguments.d)', Reads(arguments=NAMES({"d"}))),
        ('principal.getTag("x") == context.claims.x', Reads(NAMES({"x"}))),
        ('{Var: "context"}.Var == "context"', Reads()),
        ("-context.arguments.n < 2 + 3 * context.claims.m", Reads(NAMES({"m"}), NAMES({"n"}))),
        ('"context.arguments.x" == principal.name', Reads()),
    ],
)
def test_what_a_condition_reads_is_found(condition, expected):
    found = reads(condition)
    if expected == EVERYTHING:
        assert found.claims is None
        assert found.arguments is None
    else:
        assert found == expected


@pytest.mark.parametrize(
    "node",
    [
        None,
        {},
        [],
        {"Slot": "?principal"},
        {"Unknown": {}},
        {"Var": "context"},
        {"Var": "new"},
        {"a": 1, "b": 2},
        {".": {"left": {"Var": "context"}, "attr": ["claims", "x"]}},
    ],
    ids=repr,
)
def test_what_the_walk_does_not_know_counts_as_reading_everything(node):
    found = expression_reads(node)
    assert found.arguments is None
    assert found.claims is None


ALL = "principal, action, resource"


def when(condition: str) -> str:
    return f"permit({ALL}) when {{ {condition} }};"


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        ([f"permit({ALL})"], r"a: unexpected end"),
        ([f"permit({ALL});", "forbid(principal);"], r"b: .*missing the `action`"),
        ([f"allow({ALL});"], r"a: invalid policy effect"),
        ([when("nope(1)")], r"a: .*not a valid function"),
        (["permit(principal == ?principal, action, resource);"], "a: templates"),
        ([f'@id("x") permit({ALL});', f'@id("x") forbid({ALL});'], "two policies"),
        ([when("(" * 51 + "true" + ")" * 51)], "too deeply"),
        ([when(" && ".join(["true"] * 2500))], "too deeply or too long"),
        ([when(" || ".join(["true"] * 200))], r"use \[...\].contains"),
        (["\0"], "a: "),
    ],
)
def test_one_bad_text_spoils_all_and_is_named(texts, said):
    with pytest.raises(InvalidPolicies, match=said):
        read_policies(zip("ab", texts, strict=False))


def test_brackets_and_operators_in_texts_and_comments_do_not_count():
    deep = "(" * 500
    text = f'permit(principal, action, resource) // {deep}\nwhen {{ principal.x == "{deep} \\" {deep}" }};'
    assert len(read_policies([("p", text)])) == 1
    many = 'permit(principal, action, resource) when { principal.x == "y" };\n' * 3000
    assert len(read_policies([("p", many)])) == 3000


def shapes() -> dict[str, str]:
    depth, operators = MAX_DEPTH - 2, MAX_OPERATORS - 10
    return {
        "brackets": "(" * depth + "true" + ")" * depth,
        "sets": "[" * depth + "1" + "]" * depth + " == 1",
        "records": "{a:" * depth + "1" + "}" * depth + " == 1",
        "negations": "!(" * depth + "true" + ")" * depth,
        "and": " && ".join(["true"] * operators),
        "plus": " + ".join(["1"] * operators) + " == 1",
        "attributes": "context" + ".a" * operators + " == 1",
        "else": "if true then false else " * (operators - 1) + "true",
        "if": "if " * (operators - 1) + "true" + " then true else false" * (operators - 1),
        "methods": "[1]" + ".contains(1)" * (depth - 1),
        "bangs": "!" * operators + "true",
        "minus": "-" * operators + "1 == 1",
    }


@pytest.mark.parametrize("shape", shapes())
def test_what_is_just_short_enough_to_be_tried_does_not_take_the_process_down(shape, tmp_path):
    """Cedar's parser recurses without a limit of its own: in a process of its own, as this is about a crash."""
    text = tmp_path / "policy.cedar"
    text.write_text(f"permit(principal, action, resource) when {{ {shapes()[shape]} }};")
    program = (
        "import sys, threading\n"
        "from pathlib import Path\n"
        "from fairway.proxy.middleware.cedar import Book, InvalidPolicies, read_policies\n"
        "def run():\n"
        "    try:\n"
        "        Book(read_policies([('p', Path(sys.argv[1]).read_text())])).slice('call_tool', 'Tool', 'a')\n"
        "    except InvalidPolicies: pass\n"
        "run(); t = threading.Thread(target=run); t.start(); t.join(); print('alive')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(text)],
        capture_output=True,
        text=True,
        cwd=Path.cwd(),
        timeout=60,
        check=False,
    )
    assert done.stdout == "alive\n", done.stderr


@pytest.mark.parametrize(
    "content",
    [b"", b"{}", b"null", b"[1]", b'[{"uid":"x"}]', b'[{"uid":{"type":"A","id":"b"},"uid":1}]', b"\xff", b"[" * 5000],
)
def test_entities_that_cannot_be_read_are_refused(content):
    with pytest.raises(InvalidPolicies, match=r"entities\.json"):
        read_entities(content, "entities.json")


def test_a_long_chain_of_groups_does_not_take_the_process_down():
    chain = [
        {"uid": {"type": "Tool", "id": f"g{n}"}, "attrs": {}, "parents": [{"type": "Tool", "id": f"g{n + 1}"}]}
        for n in range(300)
    ]
    assert len(read_entities(json.dumps(chain).encode())) == 300


def test_files_and_texts_make_one_book(tmp_path):
    (tmp_path / "a.cedar").write_text('@id("from file") permit(principal, action, resource);')
    (tmp_path / "e.json").write_text('[{"uid":{"type":"Tool","id":"a"},"attrs":{},"parents":[]}]')
    config = policy.Authorization(
        policies=("forbid(principal, action, resource);",),
        policy_files=(str(tmp_path / "a.cedar"),),
        entities_file=str(tmp_path / "e.json"),
    )
    book = load(config, lambda path: Path(path).read_bytes())
    assert [one.id for one in book.policies] == ["policies[0]#0", "from file"]
    found = book.slice("call_tool", "Tool", "a")
    assert book.told_apart(found, "Tool", "a")
    assert not book.told_apart(found, "Tool", "b")
    with pytest.raises(OSError, match="nowhere"):
        load(policy.Authorization(policy_files=("/nowhere",)), lambda path: Path(path).read_bytes())
    (tmp_path / "a.cedar").write_bytes(b"\xff")
    with pytest.raises(InvalidPolicies, match="UTF-8"):
        load(config, lambda path: Path(path).read_bytes())


# slices


def test_a_slice_holds_only_what_can_match():
    book = Book(
        read_policies(
            [
                (
                    "p",
                    "".join(
                        f'permit(principal, action == Action::"call_tool", resource == Tool::"t{n}");'
                        for n in range(100)
                    )
                    + 'forbid(principal, action == Action::"get_prompt", resource);'
                    + "permit(principal, action, resource is Prompt);"
                    + 'forbid(principal, action in [Action::"call_tool", Action::"x"], resource == Tool::"t7");',
                )
            ]
        )
    )
    assert len(book.slice("call_tool", "Tool", "t3").policies) == 1
    assert len(book.slice("call_tool", "Tool", "t7").policies) == 2
    assert len(book.slice("call_tool", "Tool", "unknown").policies) == 0
    assert len(book.slice("get_prompt", "Prompt", "p").policies) == 2
    assert book.slice("call_tool", "Tool", "unknown") is book.slice("call_tool", "Tool", "other")


CLIENTS = ["alice", "bob"]
TOOLS = ["a", "b", "c", "never mentioned"]
GROUPS = ["eng", "ops"]
ACTIONS = ["call_tool", "get_prompt", "read_resource"]
KINDS = ["Tool", "Prompt", "Resource"]


def entity(kind: str, names: list[str]) -> st.SearchStrategy[str]:
    return st.sampled_from(names).map(lambda name: f'{kind}::"{name}"')


principals = (
    st.just("principal")
    | entity("Client", CLIENTS).map(lambda e: f"principal == {e}")
    | entity("Group", GROUPS).map(lambda e: f"principal in {e}")
    | st.just("principal is Client")
)
actions = (
    st.just("action")
    | entity("Action", ACTIONS).map(lambda e: f"action == {e}")
    | entity("Action", [*ACTIONS, "group"]).map(lambda e: f"action in {e}")
    | st.lists(entity("Action", [*ACTIONS, "group"]), min_size=1, max_size=3).map(
        lambda es: f"action in [{', '.join(es)}]"
    )
)
resources = (
    st.just("resource")
    | st.sampled_from(KINDS).flatmap(lambda k: entity(k, TOOLS)).map(lambda e: f"resource == {e}")
    | st.sampled_from([*KINDS, "Set"]).flatmap(lambda k: entity(k, [*TOOLS, "g"])).map(lambda e: f"resource in {e}")
    | st.sampled_from(KINDS).map(lambda k: f"resource is {k}")
    | st.sampled_from(KINDS).map(lambda k: f'resource is {k} in Set::"g"')
)
conditions = st.sampled_from(
    [
        "true",
        "false",
        'principal.groups.contains("eng")',
        "context.claims.admin",
        'context.claims has level && context.claims.level == "high"',
        "context.claims.count < 3",
        "context.arguments.x < 3",
        "context.arguments has x",
        'context.arguments has x && context.arguments.x == 1 && principal in Group::"ops"',
        'context.arguments == {x: 1}',
        'resource == Tool::"a"',
        'resource in Set::"g"',
        "resource.secret",
        "context has arguments",
        "context.nothing",
        "if context.claims has admin then context.arguments.y else true",
        'principal == Client::"bob" || context.arguments.y',
    ]
)  # fmt: skip
clauses = st.lists(
    st.tuples(st.sampled_from(["when", "unless"]), conditions).map(lambda c: f"{c[0]} {{ {c[1]} }}"), max_size=2
)
policies = st.tuples(st.sampled_from(["permit", "permit", "forbid"]), principals, actions, resources, clauses).map(
    lambda p: f"{p[0]}({p[1]}, {p[2]}, {p[3]}) {' '.join(p[4])};"
)
uid = lambda kind, name: {"type": kind, "id": name}  # noqa: E731
hierarchies: st.SearchStrategy[list[dict[str, Any]]] = st.sampled_from(
    [
        [],
        [{"uid": uid("Tool", "a"), "attrs": {"secret": True}, "parents": [uid("Set", "g")]}],
        [
            {"uid": uid("Tool", "never mentioned"), "attrs": {"secret": False}, "parents": [uid("Tool", "b")]},
            {"uid": uid("Prompt", "a"), "attrs": {}, "parents": [uid("Set", "g")]},
        ],
        [{"uid": uid("Action", "call_tool"), "attrs": {}, "parents": [uid("Action", "group")]}],
    ]
)
json_objects = st.dictionaries(
    st.sampled_from(["x", "y", "z"]), st.integers(0, 4) | st.booleans() | st.sampled_from(["high"]), max_size=3
)
claims = st.fixed_dictionaries(
    {}, optional={"admin": st.booleans(), "level": st.sampled_from(["high", "low"]), "count": st.integers(0, 5)}
)


def decide(policy_set: Any, entities: list[dict[str, Any]], request: dict[str, Any]) -> tuple[Any, Any, Any]:
    result = cedarpy.is_authorized(request, policy_set, entities)
    return result.decision, sorted(result.diagnostics.reasons), len(result.diagnostics.errors)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(policies, max_size=8),
    hierarchies,
    st.sampled_from(CLIENTS),
    st.lists(st.sampled_from(GROUPS), max_size=2, unique=True),
    st.sampled_from(list(zip(ACTIONS, KINDS, strict=True))),
    st.sampled_from(TOOLS),
    json_objects,
    claims,
)
def test_a_slice_with_what_it_reads_decides_as_all_policies_with_everything_do(
    texts, hierarchy, client, groups, act, name, arguments, said
):
    """Decision, reasons and number of errors are those of the whole set with the whole context."""
    action, kind = act
    read = read_policies([("p", "\n".join(texts))])
    book = Book(read, hierarchy)
    me = {"uid": uid("Client", client), "attrs": {"groups": groups}, "parents": [uid("Group", g) for g in groups]}
    request = {"principal": uid("Client", client), "action": uid("Action", action), "resource": uid(kind, name)}
    whole = cedarpy.PolicySet.from_json_str(
        json.dumps({"staticPolicies": {p.id: p.body for p in read}, "templates": {}, "templateLinks": []})
    )
    everything = {**request, "context": {"claims": said, "arguments": arguments}}
    found = book.slice(action, kind, name)
    context: dict[str, Any] = {}
    if found.reads.claims is None or found.reads.claims:
        context["claims"] = {k: v for k, v in said.items() if found.reads.claims is None or k in found.reads.claims}
    if found.reads.any_argument:
        wanted = found.reads.arguments
        context["arguments"] = {k: v for k, v in arguments.items() if wanted is None or k in wanted}
    assert decide(found.policies, [*hierarchy, me], {**request, "context": context}) == decide(
        whole, [*hierarchy, me], everything
    )
    if not book.told_apart(found, kind, name):
        other = {**everything, "resource": uid(kind, "some other name that is not mentioned")}
        assert decide(whole, [*hierarchy, me], other) == decide(whole, [*hierarchy, me], everything)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(policies, max_size=6),
    hierarchies,
    st.sampled_from(CLIENTS),
    st.sampled_from(TOOLS),
    json_objects,
    claims,
)
def test_whatever_some_arguments_are_allowed_for_is_shown_in_a_list(texts, hierarchy, client, name, arguments, said):
    book = Book(read_policies([("p", "\n".join(texts))]), hierarchy)
    me = {"uid": uid("Client", client), "attrs": {"groups": ["eng"]}, "parents": [uid("Group", "eng")]}
    request = {"principal": uid("Client", client), "action": uid("Action", "call_tool"), "resource": uid("Tool", name)}
    found = book.slice("call_tool", "Tool", name)
    full = {**request, "context": {"claims": said, "arguments": arguments}}
    if cedarpy.is_authorized(full, found.policies, [*hierarchy, me]).allowed:
        listed = {**request, "context": {"claims": said}}
        assert cedarpy.is_authorized(listed, found.possible, [*hierarchy, me]).allowed

"""Text to values, as Kubernetes would read it; what JSON cannot say is refused where it stands."""

import pytest

from fairway.api import yamlnode
from fairway.api.yamlnode import Fault


def read(text: str) -> object:
    (node,) = yamlnode.documents(text)
    return yamlnode.value_of(node)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("[1, -1, +1, 0, 0x1f, 0o17, 010, 0b11, 1_000]", [1, -1, 1, 0, 31, 15, 8, 3, 1000]),
        ("[1.5, .5, 5., 1e3, 08]", [1.5, 0.5, 5.0, 1000.0, 8.0]),
        ("[yes, No, true, off, ~, null, ]", [True, False, True, False, None, None]),
        ("[12:30, 22:22:22, 2026-01-01, =, '1', !!str 1, y]", ["12:30", "22:22:22", "2026-01-01", "=", "1", "1", "y"]),
        ("{1: a, yes: b}", {"1": "a", "yes": "b"}),
        ("a: &x {k: v}\nb: *x", {"a": {"k": "v"}, "b": {"k": "v"}}),
        ("a: &x {k: v, l: w}\nb: {<<: *x, k: z}", {"a": {"k": "v", "l": "w"}, "b": {"k": "z", "l": "w"}}),
        ("<<: [{a: 1}, {a: 2, b: 2}]", {"a": 1, "b": 2}),
    ],
)
def test_values_are_those_that_kubectl_would_send(text, value):
    assert read(text) == value


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: !!binary aGk=", "1:4 !!binary: Kubernetes knows no such type"),
        ("a: !!set {b, c}", "1:4 !!set: Kubernetes knows no such type"),
        ("a: !!python/object/apply:os.getcwd []", "1:4 !!python/object/apply:os.getcwd: Kubernetes knows no such type"),
        ("a: !mine x", "1:4 !mine: Kubernetes knows no such type"),
        ("a: .inf", "1:4 not a number that JSON knows: .inf"),
        ("a: 1e999", "1:4 not a number that JSON knows: 1e999"),
        ("a: " + "9" * 5000, "1:4 not a number that JSON knows: 999"),
        ("a: 18446744073709551616", "1:4 not a number that JSON knows"),
        ("a: !!int x", "1:4 not a number that JSON knows: x"),
        ("a: !!bool 7", "1:4 neither true nor false: 7"),
        ("a:\n- b: 1\n  b: 2", "3:3 b: given twice"),
        ("[a]: b", "1:1 not a manifest: a key must be a string"),
        ("~: b", "1:1 not a manifest: a key must be a string"),
        ("<<: 3", "1:5 not valid YAML: << takes a map"),
        ('a: "\\ud800"', "1:4 not valid text: half of a surrogate pair"),
        ("a: &x [1, *x]", "1:4 not valid YAML: an alias stands inside what it stands for"),
        ("a:\n\tb: 1", "2:1 not valid YAML: found character '\\t' that cannot start any token; indent with spaces"),
        ("a: \x01", "1:4 not valid YAML: the character U+0001 is not allowed"),
        ("[" * 5000, "1:1 not a manifest: nested too deeply"),
    ],
)
def test_what_json_cannot_say_is_refused_where_it_stands(text, said):
    with pytest.raises(Fault) as caught:
        read(text)
    assert f"{caught.value.line}:{caught.value.column} {caught.value.message}".startswith(said)


@pytest.mark.parametrize("link", ["[{}]", "{{<<: [{}]}}"], ids=["lists", "merges"])
def test_an_alias_bomb_is_refused_before_it_is_built(link):
    first = "a0: &a0 {x: y}"
    lines = [first] + [f"a{i}: &a{i} " + link.format(", ".join([f"*a{i - 1}"] * 9)) for i in range(1, 30)]
    with pytest.raises(Fault, match="its aliases stand for too many values"):
        read("\n".join(lines))


def test_a_path_leads_to_the_nearest_place_that_is_there():
    (node,) = yamlnode.documents("spec:\n  env:\n  - name: a\n")
    places = [(), ("spec", "env"), ("spec", "env", 0, "name"), ("spec", "env", 0, "gone"), ("spec", "env", 7), ("no",)]
    marks = [yamlnode.mark_of(node, path) for path in places]
    assert [(m.line, m.column) for m in marks] == [(0, 0), (1, 2), (2, 4), (2, 4), (1, 2), (0, 0)]

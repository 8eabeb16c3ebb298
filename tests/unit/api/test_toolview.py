import time
from fnmatch import fnmatchcase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairway.api.toolview import Presented, ToolConflict, ToolView

NAMES = st.sampled_from("abcdef")


@st.composite
def views(draw):
    allowed = draw(st.none() | st.frozensets(NAMES))
    presented = draw(st.dictionaries(NAMES, st.builds(Presented, name=st.none() | NAMES, description=st.none())))
    try:
        return ToolView(allowed=allowed, presented=presented)
    except ToolConflict:
        return ToolView(allowed=allowed)


@given(views(), st.sets(NAMES))
def test_what_is_listed_can_be_called_and_nothing_else_can(view, offered):
    listed = {view.exposed(name): name for name in offered if view.exposed(name) is not None}
    for exposed, backend in listed.items():
        assert view.backend(exposed) == backend
    for asked in "abcdef":
        reached = view.backend(asked)
        if reached in offered:
            assert listed.get(asked) == reached


@given(views(), st.sets(NAMES))
def test_no_two_tools_are_listed_under_one_name(view, offered):
    listed = [view.exposed(name) for name in offered if view.exposed(name) is not None]
    assert len(listed) == len(set(listed))


def test_a_hidden_tool_can_neither_be_seen_nor_called():
    view = ToolView(allowed=frozenset({"a"}))
    assert (view.exposed("a"), view.backend("a")) == ("a", "a")
    assert (view.exposed("b"), view.backend("b")) == (None, None)


def test_a_renamed_tool_is_gone_under_its_old_name():
    view = ToolView(presented={"a": Presented(name="x", description="new")})
    assert (view.exposed("a"), view.backend("x"), view.backend("a")) == ("x", "a", None)
    assert view.description("a") == "new"


def test_two_tools_can_swap_their_names():
    view = ToolView(presented={"a": Presented(name="b"), "b": Presented(name="a")})
    assert (view.exposed("a"), view.exposed("b")) == ("b", "a")
    assert (view.backend("a"), view.backend("b")) == ("b", "a")


def test_an_empty_filter_hides_everything():
    assert ToolView(allowed=frozenset()).backend("a") is None


def test_two_tools_renamed_to_one_name_are_refused():
    with pytest.raises(ToolConflict, match="a and b are both renamed to x"):
        ToolView(presented={"a": Presented(name="x"), "b": Presented(name="x")})


def test_a_rename_onto_a_tool_that_the_filter_keeps_is_refused():
    with pytest.raises(ToolConflict, match="a is renamed to b"):
        ToolView(allowed=frozenset({"a", "b"}), presented={"a": Presented(name="b")})


def test_a_rename_onto_a_tool_that_nobody_knew_of_shadows_it_and_says_so():
    view = ToolView(presented={"a": Presented(name="b")})
    assert view.shadowed(["a", "b", "c"]) == ["b"]
    assert view.backend("b") == "a"


def test_names_that_the_server_does_not_offer_are_reported():
    view = ToolView(allowed=frozenset({"a", "gone"}), presented={"lost": Presented(name="x")})
    assert view.unknown(["a", "b"]) == ["gone", "lost"]


@pytest.mark.parametrize(
    ("pattern", "admitted", "hidden"),
    [
        ("get_*", ["get_", "get_user"], ["list", "forget_x", "Get_x", "exacter"]),
        ("*_read", ["a_read", "_read"], ["a_reads"]),
        ("a*b*c", ["abc", "axbxc", "abbcc"], ["acb", "abcd"]),
        ("tool?", ["tool1"], ["tool", "tool12"]),
        ("*", ["", "anything\nat all"], []),
        ("a.b*", ["a.bc"], ["axbc"]),
    ],
)
def test_a_pattern_admits_what_it_matches_as_a_whole(pattern, admitted, hidden):
    view = ToolView(allowed=frozenset({pattern, "exact"}))
    for name in (*admitted, "exact"):
        assert (view.exposed(name), view.backend(name)) == (name, name)
    for name in hidden:
        assert (view.exposed(name), view.backend(name)) == (None, None)


@given(st.text("ab*?", max_size=8), st.text("ab", max_size=10))
def test_a_pattern_means_what_it_means_in_a_shell(pattern, name):
    assert (ToolView(allowed=frozenset({pattern})).exposed(name) is not None) == fnmatchcase(name, pattern)


def test_a_name_made_up_to_match_almost_costs_no_more_than_another():
    view = ToolView(allowed=frozenset({"*a" * 60 + "*b"}))
    before = time.process_time()
    assert view.backend("a" * 4000) is None
    assert time.process_time() - before < 1.0


def test_a_rename_goes_before_a_tool_that_a_pattern_admits():
    view = ToolView(allowed=frozenset({"*"}), presented={"old": Presented(name="new")})
    assert view.backend("new") == "old"
    assert view.shadowed(["old", "new"]) == ["new"]


def test_a_pattern_that_matches_nothing_is_unknown():
    view = ToolView(allowed=frozenset({"get_*", "put_*", "x"}))
    assert view.unknown(["get_a", "b"]) == ["put_*", "x"]
    assert view.named == {"x"}

import pytest

from fairway.api.conditions import Reason
from fairway.controllers.mcpserver.inputs import Inputs, Missing, gather
from fairway.controllers.mcpserver.pythonsource import problem_of
from fairway.controllers.mcptoolconfig.reference import referenced_tool_config
from tests.unit.controllers.mcpserver.samples import server, tool_config


def test_a_valid_server_needs_nothing_else():
    assert isinstance(gather(server(), None), Inputs)


def test_a_field_from_the_future_does_no_harm():
    assert isinstance(gather(server(image="x", someday={"a": 1}), None), Inputs)


def test_an_invalid_spec_is_named_by_its_field():
    assert gather(server(image="x", port=0), None) == Missing(
        Reason.INVALID_SPEC, "spec.port: Input should be greater than or equal to 1"
    )
    assert gather(server(image="x", inlineTools={"python": "x"}), None) == Missing(
        Reason.INVALID_SPEC, "spec: set exactly one source: image, package, inlineTools, runtime, remote or serviceRef"
    )


def test_a_syntax_error_is_named_by_its_line():
    missing = gather(server(inlineTools={"python": "x = 1\ndef (:\n"}), None)
    assert isinstance(missing, Missing)
    assert missing.reason is Reason.INLINE_TOOLS_INVALID
    assert missing.message.startswith("spec.inlineTools.python: line 2: ")


@pytest.mark.parametrize("source", ["\0", "(" * 100_000, "-" * 1_000_000 + "1", "x" + ".a" * 50_000])
def test_source_that_is_meant_to_hurt_the_compiler_does_not(source):
    problem_of(source.encode(errors="surrogatepass"))


def test_a_tool_config_that_does_not_exist_is_waited_for():
    missing = gather(server(image="x", toolConfigRef={"name": "few"}), None)
    assert missing == Missing(
        Reason.TOOL_CONFIG_NOT_FOUND,
        "spec.toolConfigRef: there is no MCPToolConfig few in namespace team",
        waiting=True,
    )


def test_a_tool_config_that_contradicts_itself_stops_the_server_and_not_the_check():
    config = tool_config(override={"a": {"name": "x"}, "b": {"name": "x"}})
    missing = gather(server(image="x", toolConfigRef={"name": "few"}), config)
    assert missing == Missing(Reason.TOOL_CONFLICT, "MCPToolConfig few: a and b are both renamed to x")


def test_the_reference_is_read_even_from_a_broken_object():
    assert referenced_tool_config({"spec": {"toolConfigRef": {"name": "few"}}}) == "few"
    for broken in ({}, {"spec": None}, {"spec": {"toolConfigRef": "few"}}, {"spec": {"toolConfigRef": {"name": 3}}}):
        assert referenced_tool_config(broken) is None


def test_a_tool_config_that_no_config_map_could_hold_is_named_with_the_way_out():
    long = {f"tool-{number}": {"description": "d" * 16_000} for number in range(80)}
    missing = gather(server(image="x", toolConfigRef={"name": "few"}), tool_config(override=long))
    assert isinstance(missing, Missing)
    assert missing.reason is Reason.TOOL_CONFIG_INVALID
    assert "MCPToolConfig few: " in missing.message
    assert "shorten" in missing.message
    assert "spec.override" in missing.message

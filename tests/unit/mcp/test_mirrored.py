"""Arguments repeated in headers: judged as the reference implementation judges them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp.shared import inbound

from fairway.mcp.mirrored import InvalidAnnotationError, MirroredArgument, mirrored_arguments, mismatch

SCHEMA = {
    "type": "object",
    "properties": {
        "region": {"type": "string", "x-mcp-header": "Region"},
        "count": {"type": "integer", "x-mcp-header": "Count"},
        "dry": {"type": "boolean", "x-mcp-header": "Dry"},
        "deep": {"type": "object", "properties": {"er": {"type": "string", "x-mcp-header": "Deep-Er"}}},
        "plain": {"type": "string", "default": {"x-mcp-header": "this is data"}},
    },
}


def on(name, **schema):
    return {"type": "object", "properties": {name: schema}}


def test_annotations_are_found_wherever_plain_properties_lead():
    assert set(mirrored_arguments(SCHEMA)) == {
        MirroredArgument(("region",), "Mcp-Param-Region", "string"),
        MirroredArgument(("count",), "Mcp-Param-Count", "integer"),
        MirroredArgument(("dry",), "Mcp-Param-Dry", "boolean"),
        MirroredArgument(("deep", "er"), "Mcp-Param-Deep-Er", "string"),
    }


INVALID = [
    on("a", type="number", **{"x-mcp-header": "A"}),
    on("a", type=["string", "null"], **{"x-mcp-header": "A"}),
    on("a", **{"x-mcp-header": "A"}),
    on("a", type="string", **{"x-mcp-header": ""}),
    on("a", type="string", **{"x-mcp-header": "with space"}),
    on("a", type="string", **{"x-mcp-header": "A\r\nB"}),
    on("a", type="string", **{"x-mcp-header": 7}),
    on("a", type="array", items={"type": "string", "x-mcp-header": "A"}),
    on("a", anyOf=[{"type": "string", "x-mcp-header": "A"}, {"type": "null"}]),
    {"type": "object", "x-mcp-header": "A"},
    {"type": "object", "$defs": {"x": {"type": "string", "x-mcp-header": "A"}}},
    {
        "type": "object",
        "properties": {
            "a": {"type": "string", "x-mcp-header": "Same"},
            "b": {"type": "string", "x-mcp-header": "sAME"},
        },
    },
]


@pytest.mark.parametrize("schema", INVALID)
def test_annotations_that_make_clients_drop_the_tool_are_refused(schema):
    assert inbound.find_invalid_x_mcp_header(schema) is not None
    with pytest.raises(InvalidAnnotationError):
        mirrored_arguments(schema)


scalars = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**53), 2**53), st.floats(allow_nan=False), st.text(max_size=8), st.just([])
)
arguments = st.fixed_dictionaries(
    {}, optional={"region": scalars, "count": scalars, "dry": scalars, "deep": st.fixed_dictionaries({"er": scalars})}
)
spellings = st.sampled_from(
    ["42", "42.0", "-7", "042", "4.2e1", "true", "True", "a", "", "=?base64?YQ==?=", "=?base64?!?="]
)


@given(arguments, st.dictionaries(st.sampled_from(["region", "count", "dry", "deep-er", "other"]), spellings))
def test_a_call_is_refused_exactly_when_the_reference_server_refuses_it(given_arguments, sent):
    # either what a client would send for these arguments, or that with something else put in its place
    honest = inbound.mcp_param_headers(inbound.x_mcp_header_map(SCHEMA), given_arguments)
    headers = {name.lower(): value for name, value in honest.items()}
    assert mismatch(mirrored_arguments(SCHEMA), given_arguments, headers) is None
    headers |= {f"mcp-param-{name}": value for name, value in sent.items()}
    refused = inbound.validate_mcp_param_headers(SCHEMA, given_arguments, headers) is not None
    assert (mismatch(mirrored_arguments(SCHEMA), given_arguments, headers) is not None) == refused


def test_a_value_outside_ascii_travels_encoded_or_not_at_all():
    one = mirrored_arguments(on("city", type="string", **{"x-mcp-header": "City"}))
    assert mismatch(one, {"city": "Köln"}, {"mcp-param-city": "Köln"}) is not None
    assert mismatch(one, {"city": "Köln"}, {"mcp-param-city": "=?base64?S8O2bG4=?="}) is None
    assert mismatch(one, {"city": "Köln"}, {"mcp-param-city": "=?base64?%%?="}) is not None
    assert mismatch(one, {"city": "Köln"}, {}) is not None


def test_a_number_of_thousands_of_digits_is_neither_compared_nor_fatal():
    one = mirrored_arguments(on("n", type="integer", **{"x-mcp-header": "N"}))
    assert mismatch(one, {"n": 10**5000}, {}) is None
    assert mismatch(one, {"n": 1}, {"mcp-param-n": "1" * 5000}) is not None

"""The words of MCP: revisions, header values, statuses."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp.shared import inbound
from mcp_types import jsonrpc, version

from fairway.mcp import protocol
from fairway.mcp.protocol import Era, ErrorCode, Header, Meta, Method


def test_the_revisions_are_those_of_the_reference_implementation():
    assert protocol.SESSION_VERSIONS == version.HANDSHAKE_PROTOCOL_VERSIONS
    assert protocol.MODERN_VERSIONS == version.MODERN_PROTOCOL_VERSIONS


def test_error_codes_are_those_of_the_reference_implementation():
    assert ErrorCode.HEADER_MISMATCH == jsonrpc.HEADER_MISMATCH
    assert ErrorCode.MISSING_CLIENT_CAPABILITY == jsonrpc.MISSING_REQUIRED_CLIENT_CAPABILITY
    assert ErrorCode.UNSUPPORTED_VERSION == jsonrpc.UNSUPPORTED_PROTOCOL_VERSION


@pytest.mark.parametrize("code", list(inbound.ERROR_CODE_HTTP_STATUS))
def test_modern_errors_carry_the_status_of_the_reference_implementation(code):
    assert protocol.http_status(code, Era.MODERN) == inbound.ERROR_CODE_HTTP_STATUS[code]


def test_the_session_era_answers_200_to_whatever_it_could_read():
    assert protocol.http_status(ErrorCode.METHOD_NOT_FOUND, Era.SESSION) == 200
    assert protocol.http_status(ErrorCode.INVALID_PARAMS, Era.SESSION) == 200
    assert protocol.http_status(ErrorCode.PARSE_ERROR, Era.SESSION) == 400


def test_an_absent_version_header_means_the_session_era_and_an_unknown_one_the_modern():
    assert protocol.era_of(None) is Era.SESSION
    assert protocol.era_of("2025-11-25") is Era.SESSION
    assert protocol.era_of("2026-07-28") is Era.MODERN
    assert protocol.era_of("2031-01-01") is Era.MODERN


@given(st.text())
def test_header_values_survive_the_way_and_back(value):
    encoded = protocol.encode_header_value(value)
    assert encoded.isascii()
    assert encoded == encoded.strip()
    assert protocol.decode_header_value(encoded) == value


@given(st.text(alphabet=st.characters(codec="utf-8")))
def test_header_values_are_spelt_as_the_reference_implementation_spells_them(value):
    assert protocol.encode_header_value(value) == inbound.encode_header_value(value)


@pytest.mark.parametrize("broken", ["=?base64?%%%?=", "=?base64?YQ?=", "=?base64?YR==?=", "=?base64?/w==?="])
def test_a_broken_encoded_header_value_equals_nothing(broken):
    assert protocol.decode_header_value(broken) is None


def test_modern_headers_repeat_method_and_name():
    headers = protocol.request_headers("2026-07-28", Method.TOOLS_CALL, {"name": "größe"})
    assert headers[Header.METHOD] == "tools/call"
    assert protocol.decode_header_value(headers[Header.NAME]) == "größe"
    assert Header.NAME not in protocol.request_headers("2026-07-28", Method.TOOLS_LIST, {"name": "x"})
    assert protocol.request_headers("2026-07-28", Method.RESOURCES_READ, {"uri": "a://b"})[Header.NAME] == "a://b"


def test_a_modern_request_passes_the_reference_servers_checks():
    params = {"name": "echo", "arguments": {}, "_meta": protocol.request_meta("2026-07-28", client={"name": "f"})}
    headers = {k.lower(): v for k, v in protocol.request_headers("2026-07-28", Method.TOOLS_CALL, params).items()}
    body = msgspec.json.decode(protocol.request_body(1, Method.TOOLS_CALL, params))
    route = inbound.classify_inbound_request(body, headers=headers)
    assert isinstance(route, inbound.InboundModernRoute), route
    assert body["params"]["_meta"][Meta.CLIENT_INFO] == {"name": "f"}


def test_a_raw_id_goes_back_byte_for_byte():
    raw = msgspec.Raw(b"123456789012345678901234567890")
    assert b'"id":123456789012345678901234567890' in protocol.error_body(raw, ErrorCode.INVALID_PARAMS, "no")
    assert b'"id":123456789012345678901234567890' in protocol.result_body(raw, {})
    assert b'"id":null' in protocol.error_body(None, ErrorCode.PARSE_ERROR, "no")


def test_an_error_without_data_has_no_data_key():
    assert b"data" not in protocol.error_body(1, ErrorCode.INTERNAL_ERROR, "broken")
    assert protocol.unsupported_version_data("1900-01-01") == {"supported": ["2026-07-28"], "requested": "1900-01-01"}

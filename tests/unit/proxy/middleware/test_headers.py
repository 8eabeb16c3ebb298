"""What of a client's headers reaches the server, and what the gateway adds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairway.api import policy
from fairway.proxy.middleware.headers import Outbound, is_field_value, without_hop_by_hop
from fairway.proxy.middleware.refusal import Refusal


class Clock:
    now = 0.0

    def __call__(self) -> float:
        self.now += 10
        return self.now


def outbound(*set_headers: policy.SetHeader, forward: tuple[str, ...] = ()) -> Outbound:
    return Outbound(policy.Headers(set=set_headers, forward=forward), clock=Clock())


PASSES = [
    (b"content-type", b"application/json"),
    (b"accept", b"application/json, text/event-stream"),
    (b"user-agent", b"client/1"),
    (b"mcp-protocol-version", b"2026-07-28"),
    (b"mcp-method", b"tools/call"),
    (b"mcp-name", b"echo"),
    (b"mcp-session-id", b"abc"),
    (b"last-event-id", b"7"),
    (b"mcp-param-region", b"eu"),
]
STAYS = [
    b"authorization", b"cookie", b"cookie2", b"proxy-authorization", b"connection", b"keep-alive", b"te", b"trailer",
    b"transfer-encoding", b"upgrade", b"content-length", b"host", b"expect", b"forwarded", b"x-forwarded-for",
    b"x-forwarded-host", b"x-forwarded-proto", b"x-forwarded-user", b"x-forwarded-email", b"x-real-ip",
    b"x-remote-user",
    b"x-auth-request-user", b"x-user-id", b"x-api-key", b"x-amz-security-token", b"x-goog-authenticated-user-email",
    b"x-client-cert", b"x-forwarded-client-cert", b"x-original-url", b"x-rewrite-url", b"x-http-method-override",
    b"traceparent", b"origin", b"referer", b"accept-encoding", b"via", b"anything-else",
]  # fmt: skip


def test_what_mcp_needs_passes_and_everything_else_stays():
    received = PASSES + [(name, b"x") for name in STAYS]
    assert outbound().headers(received) == PASSES


@given(
    st.lists(
        st.tuples(
            st.text("abcdefghijklmnopqrstuvwxyz-", min_size=1, max_size=20).map(str.encode), st.binary(max_size=8)
        )
    )
)
def test_no_header_passes_that_is_not_on_the_list(received):
    kept = outbound(forward=("x-team",)).headers(received)
    assert isinstance(kept, list)
    names = {name for name, _ in PASSES} | {b"accept-language", b"x-team"}
    assert all(name in names or name.startswith(b"mcp-param-") for name, _ in kept)


def test_more_headers_can_be_let_through_by_name():
    assert outbound(forward=("X-Team",)).headers([(b"x-team", b"a"), (b"x-other", b"b")]) == [(b"x-team", b"a")]


def test_what_a_client_declares_to_be_for_its_connection_stays():
    received = [(b"connection", b"close, Mcp-Param-Region , x-team"), (b"mcp-param-region", b"eu"), (b"x-team", b"a")]
    assert outbound(forward=("x-team",)).headers(received) == []


def test_a_set_header_replaces_the_clients_whatever_it_sent():
    rules = outbound(
        policy.SetHeader(name="User-Agent", value="fairway"), policy.SetHeader(name="Mcp-Param-X", value="1")
    )
    kept = rules.headers([(b"user-agent", b"evil"), (b"mcp-param-x", b"2"), (b"user-agent", b"evil2")])
    assert kept == [(b"User-Agent", b"fairway"), (b"Mcp-Param-X", b"1")]


def test_a_set_header_cannot_be_removed_by_naming_it_in_connection():
    rules = outbound(policy.SetHeader(name="X-Tenant", value="a"))
    assert rules.headers([(b"connection", b"x-tenant")]) == [(b"X-Tenant", b"a")]


def test_a_credential_comes_from_its_file_as_it_is_now(tmp_path):
    path = tmp_path / "token"
    path.write_text("first\n")
    rules = outbound(policy.SetHeader(name="Authorization", value_file=str(path), prefix="Bearer "))
    assert rules.headers([(b"authorization", b"Bearer client")]) == [(b"Authorization", b"Bearer first")]
    path.write_text("second, and longer\n")
    assert rules.headers([]) == [(b"Authorization", b"Bearer second, and longer")]


@pytest.mark.parametrize("content", [None, b"", b"\n", b"a\r\nX-Evil: 1", b"a\nb", b"a\0b", b"\x7f"])
def test_without_its_credential_no_request_goes_on_and_nothing_of_it_is_told(tmp_path, content):
    path = tmp_path / "token"
    if content is not None:
        path.write_bytes(content)
    said = outbound(policy.SetHeader(name="Authorization", value_file=str(path))).headers([])
    assert isinstance(said, Refusal)
    assert said.status == 503
    assert "Evil" not in repr(said)
    assert str(path) in said.detail
    assert str(path) not in said.message


def test_an_answers_connection_headers_stay_behind():
    received = [
        (b"content-type", b"text/event-stream"),
        (b"connection", b"keep-alive, X-Internal"),
        (b"keep-alive", b"timeout=5"),
        (b"transfer-encoding", b"chunked"),
        (b"x-internal", b"1"),
        (b"mcp-session-id", b"abc"),
        (b"upgrade", b"h2c"),
        (b"proxy-authenticate", b"Basic"),
    ]
    assert without_hop_by_hop(received) == [(b"content-type", b"text/event-stream"), (b"mcp-session-id", b"abc")]


@pytest.mark.parametrize(
    ("value", "fine"), [(b"a b\tc", True), (b"\xe9", True), (b"\r", False), (b"\n", False), (b"\0", False)]
)
def test_a_field_value_has_no_control_characters(value, fine):
    assert is_field_value(value) is fine

"""What of a client's headers reaches the server, and what the gateway adds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairway.api import policy
from fairway.proxy.answers import Refusal
from fairway.proxy.middleware.headers import PASSED, Outbound, is_field_value
from fairway.proxy.request import FATE, Fate


class Clock:
    now = 0.0

    def __call__(self) -> float:
        self.now += 10
        return self.now


def outbound(*set_headers: policy.SetHeader, forward: tuple[str, ...] = ()) -> Outbound:
    return Outbound(policy.Headers(set=set_headers, forward=forward), clock=Clock())


PASSES = [
    b"content-type", b"accept", b"accept-language", b"user-agent", b"mcp-protocol-version", b"mcp-method", b"mcp-name",
    b"mcp-session-id", b"last-event-id", b"mcp-param-region",
]  # fmt: skip
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
    rules = outbound()
    assert [name for name in PASSES + STAYS if rules.passes(name)] == PASSES


@given(st.text("abcdefghijklmnopqrstuvwxyz-", min_size=1, max_size=20).map(str.encode))
def test_no_header_passes_that_is_not_on_the_list(name):
    if outbound(forward=("x-team",)).passes(name):
        assert name in PASSED or name == b"x-team" or name.startswith(b"mcp-param-")


def test_what_passes_unasked_is_on_the_list_and_nothing_else_is():
    unasked = {name for name, fate in FATE.items() if fate is not Fate.READ}
    assert unasked == PASSED - {b"mcp-session-id"}


def test_more_headers_can_be_let_through_by_name():
    rules = outbound(forward=("X-Team",))
    assert rules.passes(b"x-team")
    assert not rules.passes(b"x-other")


def test_a_set_header_replaces_the_clients_whatever_it_sent():
    rules = outbound(
        policy.SetHeader(name="User-Agent", value="fairway"), policy.SetHeader(name="Mcp-Param-X", value="1")
    )
    assert not rules.passes(b"user-agent")
    assert not rules.passes(b"mcp-param-x")
    assert rules.set == {b"user-agent", b"mcp-param-x"}
    assert rules.added() == [b"User-Agent: fairway\r\n", b"Mcp-Param-X: 1\r\n"]


def test_a_set_header_cannot_be_forwarded_as_well():
    rules = outbound(policy.SetHeader(name="X-Tenant", value="a"), forward=("X-Tenant",))
    assert not rules.passes(b"x-tenant")
    assert not rules.forward


def test_a_credential_comes_from_its_file_as_it_is_now(tmp_path):
    path = tmp_path / "token"
    path.write_text("first\n")
    rules = outbound(policy.SetHeader(name="Authorization", value_file=str(path), prefix="Bearer "))
    assert rules.added() == [b"Authorization: Bearer first\r\n"]
    path.write_text("second, and longer\n")
    assert rules.added() == [b"Authorization: Bearer second, and longer\r\n"]


@pytest.mark.parametrize("content", [None, b"", b"\n", b"a\r\nX-Evil: 1", b"a\nb", b"a\0b", b"\x7f"])
def test_without_its_credential_no_request_goes_on_and_nothing_of_it_is_told(tmp_path, content):
    path = tmp_path / "token"
    if content is not None:
        path.write_bytes(content)
    said = outbound(policy.SetHeader(name="Authorization", value_file=str(path))).added()
    assert isinstance(said, Refusal)
    assert said.status == 503
    assert "Evil" not in repr(said)
    assert str(path) in said.detail
    assert str(path) not in said.message


@pytest.mark.parametrize(
    ("value", "fine"), [(b"a b\tc", True), (b"\xe9", True), (b"\r", False), (b"\n", False), (b"\0", False)]
)
def test_a_field_value_has_no_control_characters(value, fine):
    assert is_field_value(value) is fine

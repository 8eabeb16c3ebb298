"""Trace context: what clients send is used only if it is right, and the server hears of the proxy's own span."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairway.proxy.middleware.trace import Tracer

GOOD = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
FORM = re.compile(r"00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")


def test_a_trace_goes_on_with_the_proxy_as_the_servers_parent():
    trace = Tracer(bits=lambda n: 7).begin(GOOD, "vendor=1,other=2")
    assert trace.trace_id == "0af7651916cd43dd8448eb211c80319c"
    assert trace.parent_id == "b7ad6b7169203331"
    assert trace.span_id == "0000000000000007"
    assert trace.traceparent == "00-0af7651916cd43dd8448eb211c80319c-0000000000000007-01"
    assert trace.state == "vendor=1,other=2"
    assert trace.sampled


@pytest.mark.parametrize(
    ("header", "flags"),
    [
        (GOOD[:-2] + "00", "00"),
        (GOOD[:-2] + "03", "03"),
        (GOOD[:-2] + "ff", "03"),
        ("01" + GOOD[2:], "01"),
        ("cc" + GOOD[2:] + "-what-comes-later", "01"),
    ],
)
def test_what_later_versions_say_is_used_as_far_as_it_is_known(header, flags):
    assert Tracer().begin(header).traceparent.endswith(f"-{flags}")
    assert Tracer().begin(header).parent_id == "b7ad6b7169203331"


@pytest.mark.parametrize(
    "header",
    [
        None, "", "00", GOOD[:-1], GOOD + "0", GOOD + "-x", GOOD.upper(), " " + GOOD, GOOD + "\n", "ff" + GOOD[2:],
        "00-" + "0" * 32 + GOOD[35:], GOOD[:36] + "0" * 16 + "-01", GOOD.replace("a", "g"), GOOD.replace("-", "_"),
        "00-" + "１" * 32 + GOOD[35:],
    ],
)  # fmt: skip
def test_anything_else_begins_a_new_trace_that_nobody_asked_to_sample(header):
    trace = Tracer().begin(header, "vendor=1")
    assert trace.parent_id == ""
    assert trace.state == "", "state without its parent means nothing"
    assert not trace.sampled
    assert Tracer(sampled=True).begin(header).sampled


@pytest.mark.parametrize("state", ["x" * 513, "a=1\r\nX: 1", "a=é", "", None])
def test_state_that_cannot_be_a_header_is_dropped(state):
    assert Tracer().begin(GOOD, state).state == ""


@given(st.text(max_size=80) | st.from_regex(r"[0-9a-f]{2}-[0-9a-f]{30,34}-[0-9a-f]{14,18}-[0-9a-f]{2}.*"))
def test_whatever_comes_in_what_goes_out_is_right(header):
    trace = Tracer().begin(header)
    assert FORM.fullmatch(trace.traceparent)
    assert trace.trace_id != "0" * 32
    assert trace.span_id != "0" * 16


def test_ids_are_never_zero_and_differ():
    assert Tracer(bits=lambda n: 0).begin(None).traceparent == f"00-{'0' * 31}1-{'0' * 15}1-00"
    tracer = Tracer()
    assert len({tracer.begin(None).trace_id for _ in range(1000)}) == 1000
    assert Tracer().begin(None).trace_id != Tracer().begin(None).trace_id

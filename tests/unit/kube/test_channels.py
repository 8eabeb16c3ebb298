"""The channel protocol: what is on which channel, and how a command ended."""

from typing import Any

import orjson
import pytest

from fairway.kube import channels
from fairway.kube.channels import V4, V5, Channel, Exit, ForeignMessage


def failure(**status: Any) -> bytes:
    return orjson.dumps({"kind": "Status", "status": "Failure", **status})


def test_data_goes_with_the_number_of_its_channel() -> None:
    assert channels.write(Channel.STDIN, b"abc") == b"\x00abc"
    assert channels.read(b"\x01out") == (Channel.STDOUT, b"out")
    assert channels.read(b"\x02err") == (Channel.STDERR, b"err")
    assert channels.read(b"\x03{}") == (Channel.ERROR, b"{}")


@pytest.mark.parametrize("message", [b"\x01", b"\x02", b"\x03", b"\xff\x01"])
def test_empty_messages_and_ends_of_channels_carry_nothing(message: bytes) -> None:
    assert channels.read(message) is None


@pytest.mark.parametrize("message", [b"", b"\x00in", b"\x04resize", b"\x20", b"1base64"])
def test_what_a_server_must_not_send_is_foreign(message: bytes) -> None:
    with pytest.raises(ForeignMessage):
        channels.read(message)


def test_only_v5_can_close_stdin() -> None:
    assert channels.end_of(Channel.STDIN, V5) == b"\xff\x00"
    assert channels.end_of(Channel.STDIN, V4) is None


@pytest.mark.parametrize(
    ("status", "exit_"),
    [
        (b'{"metadata":{},"status":"Success"}', Exit(0)),
        (
            failure(
                reason="NonZeroExitCode",
                message="command terminated with exit code 3",
                details={"causes": [{"reason": "Other"}, {"reason": "ExitCode", "message": "3"}]},
            ),
            Exit(3, "NonZeroExitCode", "command terminated with exit code 3"),
        ),
        (failure(reason="InternalError", message="no such file"), Exit(None, "InternalError", "no such file")),
        (failure(), Exit(None)),
    ],
)
def test_the_error_channel_says_how_it_ended(status: bytes, exit_: Exit) -> None:
    assert channels.read_exit(status) == exit_


@pytest.mark.parametrize(
    "status",
    [
        b"",
        b"{",
        b"[]",
        b'"Success"',
        b"{}",
        b'{"status":"Perhaps"}',
        failure(reason="NonZeroExitCode"),
        failure(reason="NonZeroExitCode", details=[]),
        failure(reason="NonZeroExitCode", details={"causes": {}}),
        failure(reason="NonZeroExitCode", details={"causes": ["ExitCode", {"reason": "ExitCode", "message": "x"}]}),
        failure(reason="NonZeroExitCode", details={"causes": [{"reason": "ExitCode"}]}),
        failure(reason="NonZeroExitCode", details={"causes": [{"reason": "ExitCode", "message": []}]}),
    ],
)
def test_a_status_that_is_none_is_no_exit(status: bytes) -> None:
    with pytest.raises(ForeignMessage):
        channels.read_exit(status)


def test_an_exit_is_ok_only_with_code_0() -> None:
    assert [exit_.ok for exit_ in (Exit(0), Exit(1), Exit(None))] == [True, False, False]

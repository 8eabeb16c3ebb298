"""What a bridge's server is and offers, in the words in which every server is reported."""

import asyncio
from functools import partial
from typing import Final

from fairway.api.proxystatus import EndpointState
from fairway.mcp.asking import Answer, Ask
from fairway.mcp.probe import ANSWER_TIMEOUT, Outcome, look_around
from fairway.mcp.protocol import JSON
from fairway.proxy.bridge import messages
from fairway.proxy.bridge.core import Bridge
from fairway.proxy.bridge.messages import FromServer
from fairway.proxy.envelope import read

PATIENCE: Final = 30.0
"""Seconds in which a server may begin; one that takes longer is still taken when it has."""
_SILENCE: Final = Answer(0, timed_out=True)


async def shake(bridge: Bridge, up: asyncio.Event) -> Outcome:
    """Waits until the server is up, and then asks what it offers. One that stays silent for long is told of."""
    try:
        async with asyncio.timeout(PATIENCE):
            await up.wait()
    except TimeoutError:
        return Outcome(EndpointState.FAILED, f"{bridge.link.why}{_noise(bridge.link.noise)}")
    spoken = bridge.link.spoken
    if spoken is None:
        return Outcome(EndpointState.UNREACHABLE, bridge.link.why)
    found = await look_around(spoken, partial(_answer, bridge))
    return found if bridge.link.up else Outcome(EndpointState.UNREACHABLE, bridge.link.why)


def _noise(lines: int) -> str:
    if not lines:
        return ""
    return f"; it wrote {lines} line{'' if lines == 1 else 's'} that {'is' if lines == 1 else 'are'} no MCP message"


async def _answer(bridge: Bridge, ask: Ask) -> Answer:
    answered: asyncio.Future[FromServer | None] = asyncio.get_running_loop().create_future()

    def then(answer: FromServer | None) -> None:
        if not answered.done():
            answered.set_result(answer)

    asked = read(ask.body)
    number = bridge.link.ask(asked.method, messages.encode(asked.params) if asked.params else b"", then)
    try:
        async with asyncio.timeout(ANSWER_TIMEOUT):
            answer = await answered
    except TimeoutError:
        bridge.link.give_up_on(number)
        return _SILENCE
    if answer is None:
        return _SILENCE
    if len(answer.error):
        return Answer(200, {}, JSON, messages.error(asked.id, answer.error))
    return Answer(200, {}, JSON, messages.result(asked.id, answer.result or b"null"))

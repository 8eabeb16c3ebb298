import asyncio
from dataclasses import replace

import pytest

from fairway.controllers.mcpserver.observer import Observer, Pace
from fairway.controllers.mcpserver.reconcile import targets
from tests.unit.controllers.mcpserver.samples import SETTINGS, endpoint, inputs, pod, seen, server

pytestmark = pytest.mark.anyio

GOOD = seen(inputs(), endpoint())
TARGET = GOOD.target
FAST = Pace(first=0.001, unsettled_at_most=0.001, settled=3600)


class World:
    """Answers questions, and remembers who was asked and who was told."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.asked = []
        self.told = asyncio.Queue()

    async def ask(self, target):
        self.asked.append(target)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return replace(answer, target=target)

    def tell(self, namespace, server):
        self.told.put_nowait((namespace, server))


async def observing(world):
    return Observer(ask=world.ask, tell=world.tell, pace=FAST)


async def test_an_answer_comes_later_and_the_controller_is_told():
    world = World(GOOD)
    observer = await observing(world)
    assert observer.look("team", "hello", [TARGET]) == ()
    assert await world.told.get() == ("team", "hello")
    assert observer.look("team", "hello", [TARGET]) == (GOOD,)
    await observer.stop()


async def test_a_settled_answer_is_not_asked_for_again():
    world = World(GOOD)
    observer = await observing(world)
    observer.look("team", "hello", [TARGET])
    await world.told.get()
    await asyncio.sleep(0.05)
    assert len(world.asked) == 1
    await observer.stop()


async def test_an_unsettled_answer_is_asked_for_until_it_settles_and_told_only_when_it_changes():
    pending = seen(inputs())
    world = World(pending, pending, pending, GOOD)
    observer = await observing(world)
    observer.look("team", "hello", [TARGET])
    await world.told.get()
    await world.told.get()
    assert len(world.asked) == 4
    assert world.told.empty()
    await observer.stop()


async def test_a_pod_whose_readiness_changed_is_asked_at_once():
    world = World(GOOD)
    observer = await observing(world)
    observer.look("team", "hello", [TARGET])
    await world.told.get()
    restarted = replace(TARGET, restarts=1)
    observer.look("team", "hello", [restarted])
    await world.told.get()
    assert world.asked == [TARGET, restarted]
    await observer.stop()


async def test_a_pod_that_is_gone_is_forgotten_and_asked_no_more():
    world = World(seen(inputs()))
    observer = await observing(world)
    observer.look("team", "hello", [TARGET])
    await world.told.get()
    assert observer.look("team", "hello", []) == ()
    count = len(world.asked)
    await asyncio.sleep(0.02)
    assert len(world.asked) <= count + 1
    await observer.stop()


def test_the_pace_slows_down_to_a_limit_and_is_spread():
    pace = Pace(first=0.1, growth=2, unsettled_at_most=5, settled=300, jitter=0.2)
    assert 0.08 <= pace.delay(settled=False, attempt=0) <= 0.12
    assert 4 <= pace.delay(settled=False, attempt=1000) <= 6
    assert len({pace.delay(settled=True, attempt=0) for _ in range(10)}) > 1


async def test_a_question_that_breaks_is_an_answer_too_and_is_asked_again():
    world = World(GOOD)
    answers = [ValueError("no such port"), None]

    async def ask(target):
        found = answers.pop(0)
        if found is not None:
            raise found
        return await world.ask(target)

    observer = Observer(ask=ask, tell=world.tell, pace=FAST)
    observer.look("team", "hello", [TARGET])
    await world.told.get()
    (broken,) = observer.look("team", "hello", [TARGET])
    assert "no such port" in broken.error
    await world.told.get()
    assert observer.look("team", "hello", [TARGET]) == (GOOD,)
    await observer.stop()


@pytest.mark.parametrize(
    ("spec", "url", "legacy"),
    [
        ({}, "http://hello.team.svc.cluster.local:8080/mcp", False),
        ({"path": "/v1/mcp", "service": {"port": 80}}, "http://hello.team.svc.cluster.local:80/v1/mcp", False),
        ({"transport": "sse"}, "http://hello.team.svc.cluster.local:8080/sse", True),
    ],
)
def test_a_server_without_a_proxy_is_asked_as_its_clients_ask(spec, url, legacy):
    bare = inputs(server(image="w:1", proxy={"mode": "none"}, **spec))
    (target,) = targets(bare, SETTINGS, (pod(),), ())
    assert (target.url, target.legacy, target.via) == (url, legacy, "handshake")

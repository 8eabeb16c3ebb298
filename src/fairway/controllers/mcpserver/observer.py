"""Asks proxies and servers how they are, in the background, and tells the controller when an answer changes."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace

import structlog

from fairway.controllers.mcpserver.observation import Observation, Target

Ask = Callable[[Target], Awaitable[Observation]]
Tell = Callable[[str, str], None]


@dataclass(frozen=True, slots=True)
class Pace:
    """How often one pod is asked, in seconds."""

    first: float = 0.15
    growth: float = 1.6
    unsettled_at_most: float = 10.0
    settled: float = 300.0
    jitter: float = 0.2

    def delay(self, *, settled: bool, attempt: int) -> float:
        unsettled = min(self.first * self.growth ** min(attempt, 32), self.unsettled_at_most)
        return (self.settled if settled else unsettled) * (1 + self.jitter * (2 * random.random() - 1))  # noqa: S311  spreads load, guards nothing


@dataclass(slots=True, eq=False)
class _Watched:
    target: Target
    asking: asyncio.Task[None]
    answer: Observation | None = None
    changed: asyncio.Event = field(default_factory=asyncio.Event)


class Observer:
    """Keeps the newest answer of every pod that somebody looks at.

    A pod is asked when it is first looked at, at once when its target changes (readiness, restarts, expected hash),
    again soon while its answer is not settled, and every five minutes after that. Nobody waits for an answer.
    """

    def __init__(self, *, ask: Ask, tell: Tell, pace: Pace | None = None, at_once: int = 64) -> None:
        self._ask = ask
        self._tell = tell
        self._pace = pace or Pace()
        self._slots = asyncio.Semaphore(at_once)
        self._watched: dict[tuple[str, str], dict[str, _Watched]] = {}
        self._log = structlog.get_logger("observer")

    @property
    def watching(self) -> int:
        """How many servers somebody looks at."""
        return len(self._watched)

    def look(self, namespace: str, server: str, targets: Sequence[Target]) -> tuple[Observation, ...]:
        """The newest answers of exactly these pods of one server; pods no longer named are forgotten."""
        watched = self._watched.setdefault((namespace, server), {})
        wanted = {target.uid: target for target in targets}
        for uid in watched.keys() - wanted.keys():
            watched.pop(uid).asking.cancel()
        for uid, target in wanted.items():
            known = watched.get(uid)
            if known is None:
                watched[uid] = self._start(target)
            elif known.target != target:
                known.target = target
                known.changed.set()
        if not watched:
            del self._watched[namespace, server]
        # judged by what is expected now, and not by what was when the answer came
        return tuple(replace(w.answer, target=w.target) for w in watched.values() if w.answer is not None)

    def forget(self, namespace: str, server: str) -> None:
        """Nobody looks at the pods of this server any more."""
        self.look(namespace, server, ())

    async def stop(self) -> None:
        tasks = [w.asking for watched in self._watched.values() for w in watched.values()]
        self._watched.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _start(self, target: Target) -> _Watched:
        watched = _Watched(target, asking=asyncio.get_running_loop().create_future())  # type: ignore[arg-type]
        watched.asking = asyncio.create_task(self._keep_asking(watched))
        return watched

    async def _keep_asking(self, watched: _Watched) -> None:
        attempt = 0
        while True:
            watched.changed.clear()
            target = watched.target
            async with self._slots:
                answer = await self._answer(target)
            if answer != watched.answer:
                watched.answer = answer
                self._tell(target.namespace, target.server)
            delay = self._pace.delay(settled=answer.settled, attempt=attempt)
            try:
                await asyncio.wait_for(watched.changed.wait(), delay)
                attempt = 0
            except TimeoutError:
                attempt += 1

    async def _answer(self, target: Target) -> Observation:
        try:
            return await self._ask(target)
        except Exception as error:
            # A bug shows as a traceback; were it to end the asking, the last answer would stand for ever.
            self._log.exception("asking failed", namespace=target.namespace, pod=target.pod)
            return Observation(target, error=f"{target.pod} cannot be asked: {error}")

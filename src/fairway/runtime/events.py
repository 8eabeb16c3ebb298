"""Events on objects (events.k8s.io/v1): deduplicated, rate limited, never in the way of the work."""

import asyncio
import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol

import structlog

from fairway.kube.bucket import TokenBucket
from fairway.kube.errors import KubeError, NotFound
from fairway.kube.resource import EVENT, Obj, Resource
from fairway.runtime.outcome import Notice

_LONGEST_NOTE = 1024
_REMEMBERED = 4096


class EventClient(Protocol):
    async def create(self, resource: Resource, obj: Obj, *, namespace: str | None = None) -> Obj: ...
    async def merge(self, resource: Resource, namespace: str | None, name: str, patch: Obj) -> Obj: ...


@dataclass(slots=True)
class _Series:
    """One event and its repetitions."""

    event: Obj
    count: int = 1
    written: int = 0
    next_write: float = 0.0


class EventRecorder:
    """`record` returns at once; `run` writes.

    The same notice on the same object is one event whose series counts up, written ever more rarely (after 5, 10 ...
    300 seconds). One object gets 25 different events at once and then one every 5 minutes. Events that cannot be
    written are dropped: they are news, not state.
    """

    def __init__(
        self,
        client: EventClient,
        *,
        controller: str,
        instance: str,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._client = client
        self._controller = controller
        self._instance = instance
        self._clock = clock
        self._now = now
        self._series: OrderedDict[tuple[str, ...], _Series] = OrderedDict()
        self._budgets: OrderedDict[str, TokenBucket] = OrderedDict()
        self._wake = asyncio.Event()
        self._log = structlog.get_logger("events")
        self.dropped = 0

    def record(self, obj: Obj, notice: Notice) -> None:
        uid = obj["metadata"]["uid"]
        key = (uid, notice.type, notice.reason, notice.action, notice.note)
        series = self._series.get(key)
        if series is not None:
            series.count += 1
            self._series.move_to_end(key)
        elif self._budget(uid).reserve() > 0:
            self.dropped += 1
            return
        else:
            self._series[key] = _Series(self._event(obj, notice, key))
            if len(self._series) > _REMEMBERED:
                self._series.popitem(last=False)
        self._wake.set()

    async def run(self) -> None:
        """Writes until cancelled."""
        while True:
            self._wake.clear()
            due = await self.flush()
            try:
                await asyncio.wait_for(self._wake.wait(), due)
            except TimeoutError:
                continue

    async def flush(self) -> float | None:
        """Writes what is due; returns the seconds until more is, None if nothing waits."""
        waits: list[float] = []
        for series in list(self._series.values()):
            if series.count == series.written:
                continue
            wait = series.next_write - self._clock()
            if wait > 0:
                waits.append(wait)
            else:
                await self._write(series)
        return min(waits, default=None)

    async def _write(self, series: _Series) -> None:
        first, count = series.written == 0, series.count
        series.written = count
        pause = 5.0 if first else min(300.0, 5.0 * 2.0 ** (count.bit_length() - 1))
        series.next_write = self._clock() + pause
        metadata = series.event["metadata"]
        repeated = {"count": max(2, count), "lastObservedTime": _micro(self._now())}
        try:
            if not first:
                try:
                    await self._client.merge(EVENT, metadata["namespace"], metadata["name"], {"series": repeated})
                    return
                except NotFound:
                    pass  # the server forgets events after an hour: this one begins anew
            event = series.event if count == 1 else {**series.event, "series": repeated}
            await self._client.create(EVENT, event, namespace=metadata["namespace"])
        except KubeError as error:
            self.dropped += 1
            self._log.info("an event could not be written", reason=series.event["reason"], error=str(error))

    def _budget(self, uid: str) -> TokenBucket:
        budget = self._budgets.get(uid)
        if budget is None:
            budget = self._budgets[uid] = TokenBucket(rate=1 / 300, burst=25, clock=self._clock)
            if len(self._budgets) > _REMEMBERED:
                self._budgets.popitem(last=False)
        return budget

    def _event(self, obj: Obj, notice: Notice, key: tuple[str, ...]) -> Obj:
        metadata = obj["metadata"]
        at = self._now()
        # Unique per occurrence, so that the same notice after a restart is another event and no conflict.
        seed = "\0".join((*key, self._instance, _micro(at)))
        suffix = hashlib.blake2b(seed.encode(), digest_size=8).hexdigest()
        note = notice.note if len(notice.note.encode()) <= _LONGEST_NOTE else _cut(notice.note)
        regarding = {"apiVersion": obj["apiVersion"], "kind": obj["kind"], "name": metadata["name"]}
        regarding |= {name: metadata[name] for name in ("namespace", "uid", "resourceVersion") if metadata.get(name)}
        return {
            "apiVersion": EVENT.api_version,
            "kind": EVENT.kind,
            "metadata": {
                "name": f"{metadata['name'][:230]}.{suffix}",
                "namespace": metadata.get("namespace") or "default",
            },
            "eventTime": _micro(at),
            "reportingController": self._controller,
            "reportingInstance": self._instance[:128],
            "action": notice.action,
            "reason": notice.reason,
            "type": notice.type,
            "regarding": regarding,
            "note": note,
        }


def _cut(note: str) -> str:
    return note.encode()[: _LONGEST_NOTE - 3].decode("utf-8", "ignore") + "…"


def _micro(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")

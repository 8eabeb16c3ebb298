"""Leader election by a Lease, with a fence that falls before anybody else can lead."""

import asyncio
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol

import structlog

from fairway.kube.errors import Conflict, KubeError, NotFound
from fairway.kube.resource import LEASE, Obj, Resource
from fairway.runtime.controller import Fenced

# Theory of operation. A lease is a record that its holder renews. Nobody compares clocks of two machines: a candidate
# takes the lease over when *it* has seen no renewal for the whole duration, by its own monotonic clock. The holder
# counts from the moment at which it *sent* its last successful renewal, and stops writing `renew_within` seconds after
# that. As long as clocks run at about the same speed, `duration - renew_within` seconds lie between the last write of
# the one and the first of the other, which is what a request under way may still need.


@dataclass(frozen=True, slots=True)
class LeaseTerms:
    """Where the lease lies and how long things take, in seconds."""

    namespace: str
    name: str
    duration: float = 10.0
    renew_within: float = 6.5
    retry: float = 1.5

    def __post_init__(self) -> None:
        if not self.duration > self.renew_within > self.retry > 0:
            raise ValueError("a lease needs duration > renew_within > retry > 0")


class LeaseClient(Protocol):
    async def get(self, resource: Resource, namespace: str | None, name: str) -> Obj: ...
    async def create(
        self, resource: Resource, obj: Obj, *, namespace: str | None = None, deadline: float | None = None
    ) -> Obj: ...
    async def replace(self, resource: Resource, obj: Obj, *, deadline: float | None = None) -> Obj: ...


@dataclass(frozen=True, slots=True)
class Seen:
    """A version of the record, and when we first saw it."""

    version: str
    at: float


def observe(seen: Seen | None, record: Mapping[str, Any], *, now: float) -> Seen:
    version = record["metadata"]["resourceVersion"]
    return seen if seen is not None and seen.version == version else Seen(version, now)


def is_free(record: Mapping[str, Any], seen: Seen, identity: str, *, now: float) -> bool:
    """Whether `identity` may take the lease: nobody holds it, it does itself, or the holder has let it run out."""
    spec = record.get("spec") or {}
    holder = spec.get("holderIdentity")
    # The holder's own promise counts, in case it was configured with a longer one than we were.
    return not holder or holder == identity or now >= seen.at + float(spec.get("leaseDurationSeconds") or 0)


class Elector:
    """One candidate. `acquire`, then write under `fence` while `hold` runs; when it returns, another one may lead."""

    def __init__(
        self,
        client: LeaseClient,
        *,
        terms: LeaseTerms,
        identity: str,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        sleep: Callable[[float], Any] = asyncio.sleep,
    ) -> None:
        self._client = client
        self._terms = terms
        self._identity = identity
        self._clock = clock
        self._now = now
        self._sleep = sleep
        self._seen: Seen | None = None
        self._record: Obj | None = None
        self._until: float | None = None
        self._log = structlog.get_logger("lease").bind(lease=f"{terms.namespace}/{terms.name}", identity=identity)

    @property
    def leading(self) -> bool:
        return self._until is not None and self._clock() < self._until

    def fence(self) -> float:
        """The time by which a write that starts now must be over; raises Fenced when there is none left."""
        if self._until is None or self._clock() >= self._until:
            raise Fenced
        return self._until

    async def acquire(self) -> None:
        """Returns once this candidate leads."""
        said = ""
        while True:
            try:
                if await self._try():
                    self._log.info("leading")
                    return
                holder = ((self._record or {}).get("spec") or {}).get("holderIdentity") or ""
                if holder != said:
                    self._log.info("waiting for the leader to go", holder=holder)
                    said = holder
            except KubeError as error:
                self._log.warning("cannot take the lease", error=str(error))
            # More often than the holder renews: how soon a lease that was given back is taken, depends on nothing else.
            await self._sleep(self._terms.retry * random.uniform(0.4, 0.6))  # noqa: S311

    async def hold(self) -> None:
        """Renews until that fails for too long or another holder shows up."""
        while True:
            await self._sleep(self._terms.retry)
            if not self.leading:
                break
            try:
                if not await self._try():
                    break
            except KubeError as error:
                self._log.warning("cannot renew the lease", error=str(error))
        self._until = None
        self._log.error("lost the lease")

    async def release(self) -> None:
        """Lets the next candidate take over at once, instead of when the lease runs out."""
        if not self.leading or self._record is None:
            return
        deadline = self._until
        self._until = None
        spec = {**self._record["spec"], "holderIdentity": "", "leaseDurationSeconds": 1}
        try:
            await self._client.replace(LEASE, {**self._record, "spec": spec}, deadline=deadline)
        except KubeError as error:
            self._log.info("the lease could not be released, it runs out by itself", error=str(error))

    async def _try(self) -> bool:
        """Takes or renews the lease; False if somebody else has it."""
        started = self._clock()
        deadline = self._until if self._until is not None else started + self._terms.renew_within
        try:
            if self._until is None or self._record is None:
                self._record = await self._client.get(LEASE, self._terms.namespace, self._terms.name)
        except NotFound:
            body = self._with_us(
                {
                    "apiVersion": LEASE.api_version,
                    "kind": LEASE.kind,
                    "metadata": {"name": self._terms.name, "namespace": self._terms.namespace},
                },
            )
            try:
                self._record = await self._client.create(
                    LEASE, body, namespace=self._terms.namespace, deadline=deadline
                )
            except Conflict:
                return False  # another candidate was quicker
            self._until = started + self._terms.renew_within
            return True
        self._seen = observe(self._seen, self._record, now=started)
        if not is_free(self._record, self._seen, self._identity, now=started):
            return False
        try:
            self._record = await self._client.replace(LEASE, self._with_us(self._record), deadline=deadline)
        except (Conflict, NotFound):
            # Changed or deleted under us: look again before believing anything, and until then do not renew the claim.
            self._record = None
            if self._until is None:
                return False
            return await self._still_ours()
        self._until = started + self._terms.renew_within
        return True

    async def _still_ours(self) -> bool:
        try:
            self._record = await self._client.get(LEASE, self._terms.namespace, self._terms.name)
        except NotFound:
            self._record = None
            return True  # made again at the next renewal; the fence stays where it is until then
        return bool((self._record.get("spec") or {}).get("holderIdentity") == self._identity)

    def _with_us(self, record: Mapping[str, Any]) -> Obj:
        old = record.get("spec") or {}
        time = self._now().astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        taking = old.get("holderIdentity") != self._identity
        spec = {
            **old,
            "holderIdentity": self._identity,
            "leaseDurationSeconds": max(1, round(self._terms.duration)),
            "acquireTime": time if taking else old.get("acquireTime", time),
            "renewTime": time,
            "leaseTransitions": old.get("leaseTransitions", 0) + (taking and bool(old)),
        }
        return {**record, "spec": spec}

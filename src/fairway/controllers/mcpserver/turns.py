"""Which proxies may take a newer image now: a few at a time, so that an upgrade is no storm of rollouts."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

Obj = Mapping[str, Any]

WAIT: Final = 10.0
"""Seconds between two looks of one that waits for its turn."""
_PATIENCE: Final = 300.0
"""Seconds after which a rollout that does not end makes room: it may have nothing to do with the upgrade."""


class Turns:
    """Hands out turns. Only a proxy that serves waits for one: where none is ready, nobody is spared anything.

    Nothing is kept but which rollouts are under way; after a restart of the operator they are found again by what they
    look like.
    """

    def __init__(self, *, at_once: int, clock: Callable[[], float]) -> None:
        self._at_once = at_once
        self._clock = clock
        self._under_way: dict[str, float] = {}
        """Until when each counts, by the uid of the server."""

    def may_roll(self, uid: str, proxy: Obj | None, image: str) -> bool:
        """Whether the proxy of a server may be given what this operator makes of it, whose image is `image`."""
        now = self._clock()
        if proxy is None or _image_of(proxy) == image:
            if proxy is None or _is_rolled_out(proxy):
                self._under_way.pop(uid, None)
            else:
                self._under_way.setdefault(uid, now + _PATIENCE)
            return True
        if not (proxy.get("status") or {}).get("readyReplicas") or uid in self._under_way:
            return True
        self._under_way = {other: until for other, until in self._under_way.items() if until > now}
        if len(self._under_way) >= self._at_once:
            return False
        self._under_way[uid] = now + _PATIENCE
        return True

    def forget(self, uid: str) -> None:
        self._under_way.pop(uid, None)


def _image_of(deployment: Obj) -> str:
    containers: Sequence[Obj] = deployment["spec"]["template"]["spec"].get("containers") or ({},)
    return str(containers[0].get("image", ""))


def _is_rolled_out(deployment: Obj) -> bool:
    status, wanted = deployment.get("status") or {}, deployment["spec"].get("replicas", 1)
    current = status.get("observedGeneration", 0) >= deployment["metadata"].get("generation", 0)
    counts = {status.get(name, 0) for name in ("updatedReplicas", "readyReplicas", "replicas")}
    return current and counts == {wanted}

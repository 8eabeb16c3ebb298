"""How long to wait before a process that ended is started again."""

from dataclasses import dataclass

FORGIVEN_AFTER = 600.0
"""A container that ran this long starts its backoff anew, as with a kubelet."""


@dataclass(frozen=True, slots=True)
class RestartPace:
    """Waits between restarts: the kubelet's doubling, from a laptop's first second."""

    first: float = 1.0
    longest: float = 60.0

    def crashes(self, before: int, *, lasted: float) -> int:
        """How many in a row, this one included."""
        return 1 if lasted > FORGIVEN_AFTER else before + 1

    def wait(self, crashes: int) -> float:
        return min(self.first * 2.0 ** min(crashes - 1, 32), self.longest)

"""One `up` or `down` at a time for one state directory."""

import contextlib
import fcntl
import os
from collections.abc import Iterator

from rig.state import State


@contextlib.contextmanager
def locked(state: State) -> Iterator[None]:
    path = state.root / "lock"
    while True:
        state.root.mkdir(parents=True, exist_ok=True)
        with path.open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            # Whoever held it before may have wiped the directory, and this file with it.
            if path.exists() and os.path.samestat(os.fstat(lock.fileno()), path.stat()):
                yield
                return

"""The process that takes a rig down when the program it was made for is gone, however that one ended."""

from rig.process import wait_for_exit
from rig.state import State
from rig.teardown import down


def guard(state: State, *, owner: int, started: int) -> None:
    wait_for_exit(owner, started=started)
    down(state, wipe=True, keep_guard=True)

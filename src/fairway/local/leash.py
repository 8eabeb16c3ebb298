"""Ties a child process to the `fairway up` that started it, from the child's side: it never outlives its parent."""

import ctypes
import os
import signal
import sys

VARIABLE = "FAIRWAY_LEASH"
"""Set by the parent to its own pid."""

_PR_SET_PDEATHSIG = 1


def put_on(parent: int) -> None:
    """From now on the kernel kills this process when its parent dies; if the parent is gone already, it ends here.

    Only Linux can do that. The warden, which watches a pipe from the parent, does it everywhere, and for the child's
    own children too; this closes the moment before the warden knows of the child.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(128 + signal.SIGKILL)

"""Kills what a dead parent left running: a shell that waits for the end of a pipe, and knows process groups."""

import subprocess
from typing import Self

# Sits in a session of its own, so that no ctrl-c of the terminal reaches it. The end of its input means that the
# parent is gone, however it went; what is still in the list then is killed, grandchildren included.
_SCRIPT = """
trap '' INT TERM HUP QUIT
echo
exec >/dev/null
groups=
while read -r line; do
  case $line in
    +*) groups="$groups ${line#+}" ;;
    -*) kept=
        for group in $groups; do [ "$group" = "${line#-}" ] || kept="$kept $group"; done
        groups=$kept ;;
  esac
done
for group in $groups; do kill -s KILL -- "-$group" 2>/dev/null; done
"""


class Warden:
    """Outlives its parent by the moment that it takes to kill the parent's process groups."""

    def __init__(self) -> None:
        self._shell = subprocess.Popen(
            ["/bin/sh", "-c", _SCRIPT],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            start_new_session=True,
            cwd="/",
        )
        assert self._shell.stdout is not None
        self._shell.stdout.readline()  # from here on it ignores what would end it
        self._shell.stdout.close()

    @property
    def pid(self) -> int:
        return self._shell.pid

    def watch(self, group: int) -> None:
        self._tell(f"+{group}\n")

    def release(self, group: int) -> None:
        self._tell(f"-{group}\n")

    def close(self) -> None:
        """Ends the warden; whatever was not released is killed."""
        assert self._shell.stdin is not None
        self._shell.stdin.close()
        self._shell.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _tell(self, line: str) -> None:
        assert self._shell.stdin is not None
        try:
            self._shell.stdin.write(line.encode())
        except BrokenPipeError:
            return  # somebody killed the warden; the leash still holds, and the next start cleans up

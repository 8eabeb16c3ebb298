"""`fairway version`."""

import platform
import sys

from fairway import __version__


def main(arguments: list[str]) -> int:
    if arguments in (["-h"], ["--help"]):
        print("usage: fairway version\n\nprints the version of fairway, and of the Python that runs it")
        return 0
    if arguments:
        print(f"fairway version: takes no arguments, not {' '.join(arguments)!r}", file=sys.stderr)
        return 2
    print(f"fairway {__version__} (Python {platform.python_version()})")
    return 0

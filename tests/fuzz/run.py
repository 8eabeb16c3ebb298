"""Fuzzes one target in this process, which ends with it.

    python -m tests.fuzz.run TARGET RUNS [--seed N] [--plant BUG] [--found DIRECTORY]

ends with exit code 0 after that many executions, and with another one as soon as something is wrong. `--plant` first
breaks the parser in a way that must be found. Inputs that reach something new are left in the directory.
"""

import argparse
import json  # noqa: F401  loaded first, so that it is not what is looked at
import sys
import tempfile
from pathlib import Path

import atheris

import fairway.proxy.request
import fairway.proxy.upstream  # what the parsers rest on: loaded first, so that it is not what is looked at

with atheris.instrument_imports():
    import fairway.mcp.sse
    import fairway.proxy.envelope
    import fairway.proxy.reader  # noqa: F401

from tests.fuzz import planted, targets
from tests.fuzz.corpus import seeds

LONGEST = {"http": 1400, "jsonrpc": 400, "events": 64}
"""Bytes of an input: enough for all that a parser tells apart, as longer ones only take longer."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.run", description=__doc__)
    parser.add_argument("target", choices=sorted(targets.TARGETS))
    parser.add_argument("runs", type=int)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--plant", choices=sorted(planted.BUGS))
    parser.add_argument("--found", type=Path)
    given = parser.parse_args()
    if given.plant is not None:
        planted.BUGS[given.plant].plant()
    with tempfile.TemporaryDirectory() as scratch:
        beginning = Path(scratch, "beginning")
        beginning.mkdir()
        for number, data in enumerate(seeds(given.target)):
            (beginning / f"{number:05}").write_bytes(data)
        options = [
            f"-runs={given.runs}", f"-seed={given.seed}", f"-max_len={LONGEST[given.target]}", "-timeout=60",
            "-print_final_stats=1", f"-artifact_prefix={scratch}/", "-rss_limit_mb=2048", "-verbosity=0",
        ]  # fmt: skip
        directories = [beginning] if given.found is None else [given.found, beginning]
        command = [sys.argv[0], *options, *map(str, directories)]
        atheris.Setup(command, targets.TARGETS[given.target])
        atheris.Fuzz()


if __name__ == "__main__":
    main()

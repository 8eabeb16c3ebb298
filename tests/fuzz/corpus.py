"""What fuzzing starts from: the cases that the tests have as data, and inputs that once reached something new.

    python -m tests.fuzz.corpus TARGET DIRECTORY

puts the latter into corpus/TARGET.txt, from a directory that a run has filled: one a line, as JSON strings in latin-1
spelling, the shortest first.
"""

import json
import sys
from pathlib import Path

import yaml

from tests.hostile.corpus import GOOD_CALL, UNIT, cases

HERE = Path(__file__).parent / "corpus"
LARGEST = 2048
KEPT = 200
_EVENTS = (
    b"data: x\n\n", b"event: message\r\ndata: {}\r\nid: 1\r\n\r\n", b": ping\r\r", b"data\rdata:\r\rretry: 5\n\n",
    b"\xef\xbb\xbfdata: a\ndata: b\n\n",
)  # fmt: skip
_HEADS = (
    b"POST /mcp HTTP/1.1\r\nHost: a\r\nAccept: x\r\nConnection: close, accept\r\nContent-Length: 2\r\n\r\n{}",
    b"POST /mcp HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}GET /mcp HTTP/1.1\r\nHost: a\r\n\r\n",
)


def seeds(target: str) -> list[bytes]:
    """Inputs of a target, each once in one piece and once cut."""
    found = {data for data in _written(target) if len(data) < LARGEST}
    return sorted({first + data for data in found for first in (b"\0", b"\xc3")} | set(_found(target)))


def _written(target: str) -> list[bytes]:
    if target == "events":
        return list(_EVENTS)
    if target == "jsonrpc":
        rows = yaml.safe_load((UNIT / "envelopes.yaml").read_text())
        sent = [b"".join(piece.data for piece in case.pieces) for case in cases() if case.name.startswith("messages:")]
        return [
            GOOD_CALL,
            *(row["body"].encode("latin-1") for row in rows),
            *(s.partition(b"\r\n\r\n")[2] for s in sent),
        ]
    heads = [row["send"].encode("latin-1") for row in yaml.safe_load((UNIT / "heads.yaml").read_text())]
    return [*_HEADS, *heads, *(b"".join(piece.data for piece in case.pieces) for case in cases())]


def _found(target: str) -> list[bytes]:
    path = HERE / f"{target}.txt"
    if not path.exists():
        return []
    return [json.loads(line).encode("latin-1") for line in path.read_text().splitlines()]


def keep(target: str, directory: Path) -> None:
    found = {path.read_bytes() for path in directory.iterdir()} | set(_found(target))
    inputs = sorted(found - set(_written(target)), key=lambda data: (len(data), data))[:KEPT]
    HERE.mkdir(exist_ok=True)
    (HERE / f"{target}.txt").write_text("".join(json.dumps(data.decode("latin-1")) + "\n" for data in inputs))


if __name__ == "__main__":
    keep(sys.argv[1], Path(sys.argv[2]))

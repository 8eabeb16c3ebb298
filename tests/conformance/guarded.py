"""The proxy with everything on, and the way in for a suite that knows nothing of tokens."""

import json
import os
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from fairway.api import policy, runconfig
from tests.conformance.running import NotStartedError, free_port, printed_url, running, wait_until_ready
from tests.unit.proxy.guarded import PERMIT_ALL, Idp

PAGE = "https://app.example.org"
FAR_AWAY = policy.Bucket(tokens=1_000_000, per=1.0)


@dataclass(frozen=True)
class Guarded:
    """Where the suite connects, and where the proxy says what it did."""

    url: str
    admin: str
    audit: Path

    def counters(self) -> dict[str, int]:
        """By middleware, what each was asked so far."""
        found: dict[str, int] = {}
        for line in _read(f"{self.admin}/metrics").decode().splitlines():
            if line.startswith("fairway_proxy_middleware_total{"):
                name = line.partition('middleware="')[2].partition('"')[0]
                found[name] = found.get(name, 0) + int(line.rpartition(" ")[2])
        return found


@contextmanager
def guarded_proxy(upstream: str) -> Iterator[Guarded]:
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch)
        idp = Idp(place)
        (place / "token").write_text(idp.token())
        (place / "key").write_bytes(os.urandom(32))
        listen, admin = free_port(), free_port()
        write = _Config(place, idp, upstream, listen)
        write(None)
        command = (sys.executable, "-m", "fairway", "proxy", "--config", str(place / "run.json"))
        with running(*command, "--admin", f"127.0.0.1:{admin}") as (process, said):
            wait_until_ready(f"http://127.0.0.1:{admin}/readyz", process, said)
            status = json.loads(_read(f"http://127.0.0.1:{admin}/v1/status"))
            # a filter that names every tool there is
            expected = write(tuple(status["routes"][0]["tools"].get("names", ())))
            _wait_for_hash(f"http://127.0.0.1:{admin}/v1/status", expected)
            shim = (sys.executable, "-m", "tests.conformance.token_shim")
            with printed_url(*shim, f"http://127.0.0.1:{listen}/mcp", str(place / "token")) as url:
                yield Guarded(url, f"http://127.0.0.1:{admin}", place / "audit.log")


class _Config:
    """Writes the RunConfig; returns the hash of its route."""

    def __init__(self, place: Path, idp: Idp, upstream: str, port: int) -> None:
        self._place, self._idp, self._upstream, self._port = place, idp, urlsplit(upstream), port

    def __call__(self, tools: tuple[str, ...] | None) -> str:
        guards = policy.Policy(
            authentication=self._idp.authentication(),
            authorization=PERMIT_ALL,
            rate_limit=policy.RateLimit(shared=FAR_AWAY, principal=FAR_AWAY),
            cors=policy.Cors(allowed_origins=(PAGE,)),
            audit=policy.Audit(file=str(self._place / "audit.log"), arguments=True),
            headers=policy.Headers(set=(policy.SetHeader(name="X-Gateway", value="fairway"),)),
            sessions=policy.Sessions(key_files=(str(self._place / "key"),)),
        )
        route = runconfig.Route(
            name="default/guarded",
            listen=runconfig.Listen(host="127.0.0.1", port=self._port),
            upstream=runconfig.Upstream(addresses=(self._upstream.netloc,), path=self._upstream.path or "/"),
            tools=runconfig.Tools(filter=tools),
            policy=guards,
        )
        after = self._place / "run.new"
        after.write_bytes(runconfig.encode(runconfig.RunConfig(version=1, routes=(route,))))
        after.replace(self._place / "run.json")
        return runconfig.route_hash(route)


def _read(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=5) as answer:
        return answer.read()


def _wait_for_hash(url: str, expected: str, *, seconds: float = 10) -> None:
    end = time.monotonic() + seconds
    while json.loads(_read(url))["routes"][0]["hash"] != expected:
        if time.monotonic() > end:
            raise NotStartedError(f"the filter did not come into force: {_read(url)!r}")
        time.sleep(0.05)

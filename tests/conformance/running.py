"""The programs that a comparison needs: the fixture server, and proxies in front of it."""

import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[2]
STRIPPING = (sys.executable, "-m", "tests.conformance.stripping_proxy")


class NotStartedError(Exception):
    """A program ended before it was ready, or did not become ready."""


@contextmanager
def running(*command: str) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """A program, and the file that has all it said."""
    with tempfile.NamedTemporaryFile() as said:
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=said, text=True)
        try:
            yield process, Path(said.name)
        finally:
            process.terminate()
            try:
                process.communicate(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()


@contextmanager
def printed_url(*command: str) -> Iterator[str]:
    """A program whose first line is the URL that it serves."""
    with running(*command) as (process, said):
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        if not url.startswith("http://"):
            raise NotStartedError(f"{command}: {url} {said.read_text()[-500:]}")
        yield url


def fixture_server() -> AbstractContextManager[str]:
    return printed_url(sys.executable, "-W", "ignore", "-m", "tests.conformance.fixture_server", "0")


@contextmanager
def inline_tools(file: Path) -> Iterator[str]:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command = (sys.executable, "-m", "fairway", "tools", "--file", str(file), "--port", str(port))
    with running(*command) as (process, said):
        wait_until_ready(f"{url}/ready", process, said)
        yield f"{url}/mcp"


def fairway_proxy(upstream: str) -> AbstractContextManager[str]:
    return _by_hand("--upstream", upstream)


def fairway_bridge(*command: str) -> AbstractContextManager[str]:
    """The proxy before a server on standard input and output, which it starts."""
    return _by_hand("--stdio", after=("--", *command))


@contextmanager
def _by_hand(*source: str, after: Sequence[str] = ()) -> Iterator[str]:
    listen, admin = free_port(), free_port()
    command = (sys.executable, "-m", "fairway", "proxy", *source)
    addresses = ("--listen", f"127.0.0.1:{listen}", "--path", "/mcp", "--admin", f"127.0.0.1:{admin}")
    with running(*command, *addresses, *after) as (process, said):
        wait_until_ready(f"http://127.0.0.1:{admin}/readyz", process, said)
        yield f"http://127.0.0.1:{listen}/mcp"


def stripping_proxy(upstream: str) -> AbstractContextManager[str]:
    return printed_url(*STRIPPING, upstream)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_until_ready(url: str, process: "subprocess.Popen[str]", said: Path, *, seconds: float = 20) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if process.poll() is not None:
            raise NotStartedError(f"ended with {process.returncode}: {said.read_text()[-500:]}")
        try:
            with urllib.request.urlopen(url, timeout=2):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.02)
    raise NotStartedError(f"{url} is not ready after {seconds:g} s: {said.read_text()[-500:]}")

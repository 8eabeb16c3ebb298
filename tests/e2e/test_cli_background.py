"""up in the background, down, and clients that are made to know a server."""

import json
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.laptop import Laptop, is_alive, until

pytestmark = pytest.mark.e2e

SERVER = """\
apiVersion: fairway.dev/v1alpha1
kind: MCPServer
metadata: {name: a}
spec:
  inlineTools:
    python: |
      def answer() -> str:
          return "yes"
"""


@pytest.fixture
def laptop(tmp_path: Path) -> Iterator[Laptop]:
    laptop = Laptop(tmp_path)
    yield laptop
    laptop.run("down")
    laptop.close()


def pid_in(laptop: Laptop) -> int:
    return int((laptop.state / "lock").read_text())


def test_it_goes_on_in_the_background_and_down_leaves_nothing(laptop: Laptop):
    laptop.write("a.yaml", SERVER)
    started = laptop.run("up", "-f", "a.yaml", "--detach", "--port-base", str(laptop.base))
    assert started.returncode == 0, started.stdout + started.stderr
    assert "a  http://127.0.0.1:" in started.stdout
    assert laptop.run("call", "a", "answer").stdout == "yes\n"
    again = laptop.run("up", "-f", "a.yaml", "--detach")
    assert again.returncode == 2
    assert "already" in again.stderr
    everything = {pid_in(laptop), *laptop.pids()}
    stopped = laptop.run("down")
    assert (stopped.returncode, stopped.stdout) == (0, "stopped\n")
    assert not [pid for pid in everything if is_alive(pid)]
    assert laptop.run("down").stdout == "nothing runs in .fairway\n"


def test_one_that_cannot_become_ready_says_so_and_goes_on(laptop: Laptop):
    laptop.write("a.yaml", SERVER.replace("def answer() -> str:", "def answer( -> str:"))
    started = laptop.run("up", "-f", "a.yaml", "-d", "--port-base", str(laptop.base))
    assert started.returncode == 1
    assert "default/a  not ready" in started.stdout or "a  not ready: " in started.stdout
    assert laptop.run("get", "a").returncode == 0


def test_one_that_does_not_start_says_why(laptop: Laptop):
    laptop.write("a.yaml", SERVER.replace("inlineTools", "inlineTool"))
    refused = laptop.run("up", "-f", "a.yaml", "-d")
    assert refused.returncode == 2
    assert "spec.inlineTool: unknown field" in refused.stderr
    assert laptop.run("up", "-f", "a.yaml", "-d", "--check").returncode == 2


def test_down_ends_one_in_a_terminal_too_and_what_a_killed_one_left(laptop: Laptop):
    laptop.write("a.yaml", SERVER)
    laptop.up("-f", "a.yaml").until_ready("a")
    assert laptop.run("down").stdout == "stopped\n"
    assert laptop.process is not None
    assert laptop.process.wait(20) == 0
    # a process that both the warden and the leash failed to end
    left = subprocess.Popen(["sleep", "600"], start_new_session=True)
    try:
        from fairway.local.statedir import identity_of

        (laptop.state / "pids" / str(left.pid)).write_text(identity_of(left.pid) or "")
        assert laptop.run("down").stdout == "stopped\n"
        assert left.wait(10) == -signal.SIGKILL
    finally:
        left.kill()
        left.wait()


def test_a_client_is_shown_the_difference_and_then_knows_the_server(laptop: Laptop):
    laptop.write("a.yaml", SERVER)
    laptop.up("-f", "a.yaml").until_ready("a")
    asked = laptop.run("connect", "claude", "a")
    assert asked.returncode == 1
    assert f'+      "url": "{laptop.url("a")}"' in asked.stdout
    assert "--yes" in asked.stderr
    assert not (laptop.directory / ".mcp.json").exists()
    assert laptop.run("connect", "claude", "a", "--yes").returncode == 0
    written = json.loads((laptop.directory / ".mcp.json").read_text())
    assert written == {"mcpServers": {"a": {"type": "http", "url": laptop.url("a")}}}
    assert (laptop.directory / ".mcp.json").stat().st_mode & 0o777 == 0o600
    assert "knows a already" in laptop.run("connect", "claude", "a").stdout
    laptop.write(".mcp.json", "{ broken")
    broken = laptop.run("connect", "claude", "a", "--yes")
    assert broken.returncode == 2
    assert "line 1, column 3" in broken.stderr
    assert (laptop.directory / ".mcp.json").read_text() == "{ broken"
    assert "a URL has no name" in laptop.run("connect", "claude", laptop.url("a")).stderr
    missing = laptop.run("connect", "claude", "b")
    assert (missing.returncode, missing.stdout) == (2, "")


def test_the_inspector_is_started_through_npx(laptop: Laptop, monkeypatch: pytest.MonkeyPatch):
    laptop.write("a.yaml", SERVER)
    laptop.up("-f", "a.yaml").until_ready("a")
    shown = laptop.run("inspect", "a", "--dry-run")
    assert shown.stdout.startswith("npx --yes @modelcontextprotocol/inspector@latest")
    assert laptop.url("a") in shown.stdout
    monkeypatch.setenv("PATH", str(laptop.directory))
    without = laptop.run("inspect", "a")
    assert without.returncode == 2
    assert "needs Node.js" in without.stderr


def test_an_up_that_ignores_down_is_named(laptop: Laptop):
    laptop.write("a.yaml", SERVER)
    laptop.up("-f", "a.yaml").until_ready("a")
    assert laptop.process is not None
    laptop.process.send_signal(signal.SIGSTOP)
    try:
        began = time.monotonic()
        asked = subprocess.Popen(
            laptop._command(["down"]), cwd=laptop.directory, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        time.sleep(0.5)
        assert asked.poll() is None, "it waits"
    finally:
        laptop.process.send_signal(signal.SIGCONT)
    out, _ = asked.communicate(timeout=60)
    assert out == "stopped\n", time.monotonic() - began
    until(lambda: laptop.process.poll() is not None, "the end")

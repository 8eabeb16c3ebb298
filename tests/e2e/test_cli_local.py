"""The verbs of the command line on a running `fairway up`."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.e2e.laptop import UP_TWO, Laptop, heed_signals, until

pytestmark = pytest.mark.e2e

CRASHES = """\
apiVersion: fairway.dev/v1alpha1
kind: MCPServer
metadata: {name: crash}
spec:
  inlineTools:
    python: |
      import no_such_module
      def answer() -> int: return 42
"""


@pytest.fixture(scope="module")
def laptop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Laptop]:
    """For tests that only look."""
    laptop = Laptop(tmp_path_factory.mktemp("cli"))
    laptop.write("crash.yaml", CRASHES)
    laptop.up(*UP_TWO, "-f", "crash.yaml").until_ready("hello", "clock")
    laptop.until(lambda servers: "no_such_module" in servers["crash"]["message"], "the crash to be seen")
    yield laptop
    laptop.close()


def test_get_shows_the_columns_of_kubectl_and_the_urls_of_this_machine(laptop: Laptop):
    shown = laptop.run("get")
    lines = shown.stdout.splitlines()
    assert shown.returncode == 0, shown.stderr
    assert lines[0].split() == ["NAME", "READY", "STATUS", "TRANSPORT", "TOOLS", "REPLICAS", "URL", "AGE"]
    hello = next(line.split() for line in lines if line.startswith("hello"))
    assert hello[1:6] == ["True", "Ready", "streamable-http", "2", "1/1"]
    assert hello[6] == laptop.url("hello")


def test_get_finds_kinds_and_names_in_every_form_of_output(laptop: Laptop):
    assert laptop.run("get", "-o", "name").stdout.split() == [
        f"mcpserver.fairway.dev/{name}" for name in ("clock", "crash", "hello")
    ]
    assert json.loads(laptop.run("get", "hello", "-o", "json").stdout)["metadata"]["name"] == "hello"
    both = list(yaml.safe_load_all(laptop.run("get", "all", "-o", "yaml").stdout))
    assert {obj["kind"] for obj in both} == {"MCPServer", "MCPToolConfig"}
    missing = laptop.run("get", "mcps/helo")
    assert (missing.returncode, missing.stdout) == (1, "")
    assert "did you mean hello?" in missing.stderr


def test_describe_names_the_fault_the_exit_code_and_the_last_words(laptop: Laptop):
    until(lambda: "CrashLoopBackOff" in laptop.run("describe", "crash").stdout, "the crash, between two restarts")
    said = laptop.run("describe", "crash")
    assert said.returncode == 0, said.stderr
    assert "do: " in said.stdout
    assert "exit code 1" in said.stdout
    assert "      | error: tools.py:1: ModuleNotFoundError: No module named 'no_such_module'" in said.stdout


def test_describe_has_each_form_of_output(laptop: Laptop):
    (said,) = json.loads(laptop.run("describe", "crash", "-o", "json").stdout)
    assert said["object"]["metadata"]["name"] == "crash"
    assert any(
        "no_such_module" in line for pod in said["pods"] for words in pod["lastWords"].values() for line in words
    )
    both = list(yaml.safe_load_all(laptop.run("describe", "hello", "clock", "-o", "yaml").stdout))
    assert [one["object"]["metadata"]["name"] for one in both] == ["hello", "clock"]
    assert laptop.run("describe", "hello", "-o", "name").stdout == "mcpserver.fairway.dev/hello\n"
    assert "source  inline tools" in laptop.run("describe", "hello").stdout


def test_kubectl_fairway_is_the_same_program(laptop: Laptop):
    program = Path(sys.executable).with_name("kubectl-fairway")
    said = subprocess.run([program, "get", "-o", "name"], cwd=laptop.directory, capture_output=True, text=True)
    assert said.stdout == laptop.run("get", "-o", "name").stdout != ""


def test_logs_are_those_of_the_server_or_of_its_proxy(laptop: Laptop):
    assert "ModuleNotFoundError" in laptop.run("logs", "crash", "--tail", "5").stdout
    assert '"route":"default/hello"' in laptop.run("logs", "hello", "--proxy").stdout
    assert "no container x" in laptop.run("logs", "hello", "-c", "x").stderr


def test_wait_tells_by_its_exit_code(laptop: Laptop):
    ready = laptop.run("wait", "hello", "clock")
    assert (ready.returncode, ready.stdout) == (0, "MCPServer/hello  Ready\nMCPServer/clock  Ready\n")
    never = laptop.run("wait", "crash", "--timeout", "0")
    assert never.returncode == 1
    assert "Ready=False" in never.stderr
    assert laptop.run("wait", "nobody", "--for", "delete", "--timeout", "1").returncode == 0
    assert laptop.run("wait", "hello", "--for", "what=ever").returncode == 2


def test_tools_are_listed_as_clients_see_them(laptop: Laptop):
    assert laptop.run("tools", "hello").stdout.startswith("add(a, b)\n")
    assert laptop.run("tools", "clock", "-o", "name").stdout == "current_time\n"
    (tool,) = json.loads(laptop.run("tools", "clock", "-o", "json").stdout)
    assert tool["inputSchema"]["properties"]
    assert laptop.run("tools", "crash").returncode == 2


def test_a_name_that_is_not_there_is_one_line(laptop: Laptop):
    for verb in ("describe", "logs", "tools"):
        wrong = laptop.run(verb, "helo")
        assert (wrong.returncode, wrong.stdout) == (2, "")
        assert wrong.stderr.count("\n") == 1
        assert "did you mean hello?" in wrong.stderr


def test_following_a_log_goes_on_until_it_is_interrupted(laptop: Laptop):
    import signal

    out = laptop.directory / "followed"
    with out.open("w") as file:
        following = subprocess.Popen(
            [sys.executable, "-m", "fairway", "logs", "crash", "-f", "--tail", "0"],
            cwd=laptop.directory,
            stdout=file,
            preexec_fn=heed_signals,
        )
    try:
        until(lambda: "ModuleNotFoundError" in out.read_text(), "the next crash in the followed log")
        following.send_signal(signal.SIGINT)
        assert following.wait(20) == 130
    finally:
        following.kill()
        following.wait()


def test_without_an_up_and_without_a_cluster_both_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    nowhere = Laptop(tmp_path)
    said = nowhere.run("get")
    assert said.returncode == 2
    assert "no `fairway up` runs in" in said.stderr
    assert "no cluster is configured" in said.stderr
    assert "no `fairway up` runs here" in nowhere.run("get", "--local").stderr
    assert "leave one of them out" in nowhere.run("get", "--local", "--context", "x").stderr

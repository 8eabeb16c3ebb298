"""plan, apply and delete on a running `fairway up`."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.laptop import Laptop, until

pytestmark = pytest.mark.e2e

SERVER = """\
apiVersion: fairway.dev/v1alpha1
kind: MCPServer
metadata: {{name: {name}}}
spec:
  {extra}
  inlineTools:
    python: |
      def {tool}() -> str:
          return "yes"
"""


def server(name: str, *, tool: str = "answer", extra: str = "") -> str:
    return SERVER.format(name=name, tool=tool, extra=extra)


@pytest.fixture
def laptop(tmp_path: Path) -> Iterator[Laptop]:
    laptop = Laptop(tmp_path)
    laptop.write("first.yaml", server("first"))
    laptop.up("-f", "first.yaml", "--watch").until_ready("first")
    yield laptop
    laptop.close()


def test_a_plan_shows_what_the_apply_then_does(laptop: Laptop):
    assert laptop.run("plan", "-f", "first.yaml").returncode == 0
    laptop.write("edit/first.yaml", server("first", tool="other"))
    planned = laptop.run("plan", "-f", "edit")
    assert planned.returncode == 1, planned.stderr
    assert "~ MCPServer/first   spec.inlineTools.python" in planned.stdout
    assert "rolls the server, no gap" in planned.stdout
    assert "  tools   + other   - answer" in planned.stdout
    assert laptop.run("tools", "first", "-o", "name").stdout == "answer\n", "a plan changes nothing"
    applied = laptop.run("apply", "-f", "edit")
    assert (applied.returncode, applied.stdout) == (0, "changed    MCPServer/first\n")
    until(lambda: laptop.run("tools", "first", "-o", "name").stdout == "other\n", "the new tool")
    assert laptop.run("plan", "-f", "edit").stdout.startswith("no difference")
    assert laptop.run("apply", "-f", "edit").stdout == "unchanged  MCPServer/first\n"


def test_servers_come_and_go_while_it_runs(laptop: Laptop):
    laptop.write("more/second.yaml", server("second"))
    planned = json.loads(laptop.run("plan", "-f", "more", "-o", "json").stdout)
    assert {child["what"] for child in planned[0]["children"]} == {"create"}
    assert laptop.run("apply", "-f", "more").stdout == "created    MCPServer/second\n"
    laptop.until_ready("second")
    assert laptop.run("delete", "-f", "more").stdout == "deleted    MCPServer/second\n"
    laptop.until(lambda servers: "second" not in servers, "second to be gone")
    again = laptop.run("delete", "second")
    assert again.returncode == 1
    assert "not there" in again.stderr


def test_what_was_deleted_by_hand_comes_back_when_its_file_says_something_new(laptop: Laptop):
    assert laptop.run("delete", "first").returncode == 0
    laptop.until(lambda servers: True, "an answer") if laptop.servers() else None
    until(lambda: "first" not in laptop.servers(), "first to be gone")
    laptop.write("first.yaml", server("first", tool="again"))
    until(lambda: laptop.servers().get("first", {}).get("ready"), "first to be back")
    assert laptop.run("tools", "first", "-o", "name").stdout == "again\n"


def test_a_secret_behind_a_variable_rolls_its_server_and_stays_unseen(laptop: Laptop):
    def secret(value: str) -> str:
        return f"apiVersion: v1\nkind: Secret\nmetadata: {{name: key}}\nstringData: {{password: {value}}}\n"

    env = "env: [{name: KEY, valueFrom: {secretKeyRef: {name: key, key: password}}}]"
    laptop.write("s/secret.yaml", secret("first-value"))
    laptop.write("s/user.yaml", server("user", extra=env))
    assert laptop.run("apply", "-f", "s").returncode == 0
    laptop.until_ready("user")
    assert laptop.run("plan", "-f", "s/user.yaml").returncode == 0
    laptop.write("s/secret.yaml", secret("second-value"))
    planned = laptop.run("plan", "-f", "s/secret.yaml")
    assert "Deployment/user" in planned.stdout
    assert "rolls the server" in planned.stdout
    everything = planned.stdout + laptop.run("plan", "-f", "s", "-o", "json").stdout
    everything += laptop.run("get", "all", "-o", "yaml").stdout
    for value in ("first-value", "second-value", "c2Vjb25kLXZhbHVl", "Zmlyc3QtdmFsdWU"):
        assert value not in everything


def test_a_mistake_is_named_with_its_place_and_nothing_is_applied(laptop: Laptop):
    laptop.write("bad/a.yaml", server("good"))
    laptop.write("bad/b.yaml", server("bad").replace("inlineTools", "inlineTool"))
    for verb in ("plan", "apply", "delete"):
        refused = laptop.run(verb, "-f", "bad")
        assert (refused.returncode, refused.stdout) == (2, "")
        assert refused.stderr.startswith("bad/b.yaml:6:3  spec.inlineTool: unknown field; did you mean")
    assert "good" not in laptop.servers()

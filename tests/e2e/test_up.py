"""`fairway up`: the same manifests without a cluster, from the first second to the last process."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError

from tests.e2e.laptop import QUICKSTART, TWO, UP_TWO, Laptop, is_alive, until

pytestmark = [pytest.mark.anyio, pytest.mark.e2e]

SERVER = """\
apiVersion: fairway.dev/v1alpha1
kind: MCPServer
metadata: {{name: {name}}}
spec:
  inlineTools:
    python: |
      def {tool}() -> str:
          return "{answer}"
"""


def server(name: str, *, tool: str = "answer", answer: str = "yes") -> str:
    return SERVER.format(name=name, tool=tool, answer=answer)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def laptop(tmp_path: Path) -> Iterator[Laptop]:
    laptop = Laptop(tmp_path)
    yield laptop
    laptop.close()


@pytest.fixture(scope="module")
def quickstart(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Laptop]:
    """For tests that only look."""
    laptop = Laptop(tmp_path_factory.mktemp("quickstart"))
    laptop.up(*UP_TWO).until_ready("hello", "clock")
    yield laptop
    laptop.close()


def modes() -> pytest.MarkDecorator:
    return pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])


@modes()
async def test_clients_of_both_eras_list_and_call_tools(quickstart: Laptop, mode: str):
    async with Client(quickstart.url("hello"), mode=mode) as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == ["add", "greet"]
        result = await client.call_tool("add", {"a": 2, "b": 3})
        assert [part.text for part in result.content] == ["5"]


@modes()
async def test_a_filtered_tool_can_neither_be_seen_nor_called(quickstart: Laptop, mode: str):
    async with Client(quickstart.url("clock"), mode=mode) as client:
        (tool,) = (await client.list_tools()).tools
        assert tool.name == "current_time"
        assert tool.description.startswith("The present time in a time zone")
        assert "+00:00" in (await client.call_tool("current_time", {"timezone": "UTC"})).content[0].text
        for hidden in ("set_alarm", "delete_alarms", "now"):
            with pytest.raises(MCPError, match=r"(?i)unknown tool"):
                await client.call_tool(hidden, {"name": "a", "at": "b"})


def test_it_says_that_nothing_leaves_the_machine_and_where_everything_is(quickstart: Laptop):
    assert "nothing leaves this machine" in quickstart.output
    assert "logs in .fairway/logs/" in quickstart.output
    quickstart.until_said("hello  inline tools            standalone  2      Ready   http://127.0.0.1:")
    logs = {path.name for path in (quickstart.state / "logs").iterdir()}
    assert {"proxy.log", "fairway.log"} < logs
    assert any(name.startswith("hello-") for name in logs)


def test_everything_listens_on_loopback_only(quickstart: Laptop):
    listening = set()
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[3] == "0A":
            listening.add((fields[1].split(":")[0], int(fields[9])))
    sockets = set()
    for pid in quickstart.everything():
        for link in Path(f"/proc/{pid}/fd").iterdir():
            target = str(link.readlink())
            if target.startswith("socket:["):
                sockets.add(int(target[8:-1]))
    addresses = {address for address, inode in listening if inode in sockets}
    assert addresses == {"0100007F"}


def test_call_uses_the_names_and_the_exit_codes_say_what_happened(quickstart: Laptop):
    added = quickstart.run("call", "hello", "add", "a=2", "b=3")
    assert (added.returncode, added.stdout) == (0, "5\n")
    listed = quickstart.run("call", "hello")
    assert listed.stdout.startswith("add(a, b)\n")
    failed = quickstart.run("call", "clock", "current_time", "timezone=Nowhere/Land")
    assert failed.returncode == 1
    assert "Nowhere/Land" in failed.stderr
    for arguments, words in (
        (["hello", "ad"], "did you mean add?"),
        (["helo", "add"], "did you mean hello?"),
        (["hello", "add", "a=x", "b=1"], "a: 'x' is no integer"),
        (["hello", "add", "c=1"], "the tool has no argument 'c'"),
        (["http://127.0.0.1:1/mcp", "add"], "nothing listens on 127.0.0.1:1"),
    ):
        refused = quickstart.run("call", *arguments)
        assert refused.returncode == 2
        assert words in refused.stderr
        assert "Traceback" not in refused.stderr


def test_check_calls_every_example_in_both_eras_and_leaves_nothing(laptop: Laptop):
    checked = laptop.run("up", "-f", str(QUICKSTART), "--check", "--port-base", str(laptop.base), timeout=240)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    for words in (
        "hello  2025-11-25 add(a=2, b=3) = 5",
        "hello  2026-07-28 add(a=2, b=3) = 5",
        "clock  2026-07-28 lists 1: now",
        "time  2025-11-25 lists 2: get_current_time, convert_time",
        'notes  2026-07-28 add_note(text="buy milk") = noted: buy milk',
        "vault  without a token: POST server/discover answered 401",
        'vault  2026-07-28 read(name="motto") = festina lente',
        "tool write is not allowed for this client",
        "23 of 23 checks passed",
    ):
        assert words in checked.stdout
    table = checked.stdout.split("NAME ")[-1]
    assert table.count(" Ready ") == 5
    assert "Pending" not in table
    assert "token: .fairway/token" in table
    assert (laptop.state / "token").read_text().strip() not in checked.stdout + checked.stderr
    assert list((laptop.state / "pids").iterdir()) == []


def test_a_check_fails_where_a_policy_lets_in_more_than_was_said(laptop: Laptop):
    vault = (QUICKSTART / "vault.yaml").read_text()
    laptop.write("m/vault.yaml", vault.replace(', resource == Tool::"read"', ", resource"))
    checked = laptop.run("up", "-f", "m", "--check", "--port-base", str(laptop.base))
    assert checked.returncode == 1
    assert 'write(name="motto", value="carpe diem") was to be refused: kept' in checked.stdout


def test_call_sends_the_token_of_this_machine_and_only_where_it_is_asked_for(laptop: Laptop):
    shutil.copytree(QUICKSTART, laptop.directory / "q")
    laptop.up("-f", "q/vault.yaml").until_ready("vault")
    assert laptop.run("call", "vault", "read", "name=motto").stdout == "festina lente\n"
    assert laptop.run("tools", "vault", "-o", "name").stdout == "read\n"
    outside = laptop.run("call", "vault", "read", "name=motto", "--anonymous")
    assert outside.returncode == 2
    assert "401" in outside.stderr
    denied = laptop.run("call", "vault", "write", "name=motto", "value=x")
    assert denied.returncode == 2
    assert "no tool 'write'" in denied.stderr


def test_check_fails_when_an_example_answers_something_else(laptop: Laptop):
    hello = (QUICKSTART / "hello.yaml").read_text()
    laptop.write("m/hello.yaml", hello.replace('"expect": "5"', '"expect": "6"'))
    checked = laptop.run("up", "-f", "m", "--check", "--port-base", str(laptop.base))
    assert checked.returncode == 1
    assert "add(a=2, b=3) = '5', expected '6'" in checked.stdout


def test_check_does_not_wait_for_what_only_an_edit_can_cure(laptop: Laptop):
    laptop.write("m/a.yaml", server("good"))
    laptop.write(
        "m/b.yaml", "apiVersion: fairway.dev/v1alpha1\nkind: MCPServer\nmetadata: {name: b}\nspec: {image: x}\n"
    )
    checked = laptop.run("up", "-f", "m", "--check", "--timeout", "50", "--port-base", str(laptop.base), timeout=40)
    assert checked.returncode == 1
    assert "image x needs docker or podman" in checked.stdout
    assert "good  2026-07-28 lists 1: answer" in checked.stdout


def test_check_says_what_is_missing_when_its_time_is_up(laptop: Laptop):
    laptop.write("m/a.yaml", server("slow").replace("def answer", "import time; time.sleep(60)\n      def answer"))
    checked = laptop.run("up", "-f", "m", "--check", "--timeout", "1.5", "--port-base", str(laptop.base))
    assert checked.returncode == 1
    assert "not everything was ready within 1.5 s" in checked.stdout
    assert "nothing answers on port 8080" in checked.stdout


def test_a_broken_manifest_stops_it_before_anything_starts(laptop: Laptop):
    laptop.write("m/a.yaml", server("good"))
    laptop.write("m/b.yaml", server("bad").replace("inlineTools", "inlineTool"))
    refused = laptop.run("up", "-f", "m")
    assert refused.returncode == 2
    assert "m/b.yaml:5:3  spec.inlineTool: unknown field; did you mean spec.inlineTools?" in refused.stderr
    assert "Traceback" not in refused.stderr
    assert refused.stdout == ""
    assert not laptop.state.exists()


def test_a_crash_loop_names_the_line_and_harms_nobody_else(laptop: Laptop):
    laptop.write("m/a.yaml", server("good"))
    laptop.write("m/b.yaml", server("bad").replace("def answer", "import nothing_like_it\n      def answer"))
    laptop.up("-f", "m").until_ready("good")
    laptop.until(lambda servers: "restarted 2 times" in servers["bad"]["message"], "a second restart")
    message = laptop.servers()["bad"]["message"]
    assert message.startswith("the container exited with code 1, restarted 2 times: tools.py:1: ModuleNotFoundError")
    assert laptop.stop() == 0
    assert "bad" in laptop.output
    assert "log: .fairway/logs/bad-" in laptop.output
    assert "Traceback" not in laptop.output


def test_an_edit_is_followed_and_no_request_is_lost_meanwhile(laptop: Laptop):
    path = laptop.write("m/a.yaml", server("a", answer="old"))
    laptop.up("-f", "m", "--watch").until_ready("a")
    url = laptop.url("a")
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "answer", "arguments": {}}}
    headers = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2025-11-25"}
    answers: list[str] = []
    failures: list[str] = []
    stop = threading.Event()

    def ask_on() -> None:
        with httpx2.Client(headers=headers) as client:
            while not stop.is_set():
                response = client.post(url, json=body)
                try:
                    answers.append(response.json()["result"]["content"][0]["text"])
                except (ValueError, KeyError):
                    failures.append(f"{response.status_code} {response.text[:200]}")

    asking = threading.Thread(target=ask_on)
    asking.start()
    try:
        until(lambda: "old" in answers, "the old answer")
        path.write_text(server("a", answer="new"))
        until(lambda: "new" in answers, "the new answer")
        count = len(answers)
        until(lambda: len(answers) > count + 20, "more answers")
        # the old pod is gone before the test ends, and its going is what could have lost a request
        until(lambda: len(laptop.pids()) == 2, "the old pod's end")
    finally:
        stop.set()
        asking.join()
    assert failures == []
    assert answers[-1] == "new"


def test_a_tool_config_is_reloaded_without_a_restart(laptop: Laptop):
    (laptop.directory / "m").mkdir()
    for manifest in TWO:
        shutil.copy(manifest, laptop.directory / "m")
    laptop.up("-f", "m", "--watch").until_ready()
    before = laptop.pids()
    path = laptop.directory / "m/filter-and-rename.yaml"
    path.write_text(path.read_text().replace("filter: [now]", "filter: [now, add_days]"))
    laptop.until(lambda s: s["clock"]["ready"] and s["clock"]["status"]["tools"]["count"] == 2, "two tools")
    assert laptop.servers()["clock"]["status"]["tools"]["names"] == ["add_days", "current_time"]
    assert laptop.pids() == before


def test_a_broken_edit_is_said_and_the_last_good_one_stays(laptop: Laptop):
    path = laptop.write("m/a.yaml", server("a"))
    laptop.up("-f", "m", "--watch").until_ready("a")
    before = laptop.pids()
    path.write_text(server("a").replace("kind: MCPServer", "kind: MCPSever"))
    laptop.until_said("kind: MCPSever is not a kind of fairway.dev; did you mean MCPServer?")
    laptop.until_said("the last good manifests stay in force")
    assert laptop.servers()["a"]["ready"]
    path.write_text(server("a", tool="other"))
    laptop.until(lambda s: s["a"]["ready"] and s["a"]["status"]["tools"]["names"] == ["other"], "the next edit")
    assert laptop.pids() != before


def test_servers_come_and_go_with_their_files(laptop: Laptop):
    laptop.write("m/a.yaml", server("a"))
    laptop.up("-f", "m", "--watch").until_ready("a")
    added = laptop.write("m/b.yaml", server("b"))
    laptop.until_ready("a", "b")
    gone = laptop.pid_of("/b-")
    url = laptop.url("b")
    added.unlink()
    laptop.until(lambda servers: set(servers) == {"a"}, "b is gone")
    until(lambda: not is_alive(gone), "its process is gone")

    def refused() -> bool:
        with socket.socket() as client:
            return client.connect_ex(("127.0.0.1", int(url.split(":")[2].split("/")[0]))) != 0

    until(refused, "its port is closed")
    laptop.until_ready("a")


def test_a_server_without_proxy_has_a_lasting_address_and_its_secret(laptop: Laptop):
    source = 'import os\n      def answer() -> str:\n          return os.environ["TOKEN"]'
    bare = server("bare").replace('def answer() -> str:\n          return "yes"', source)
    environment = "spec:\n  proxy: {mode: none}\n  env: [{name: TOKEN, valueFrom: {secretKeyRef: {name: s, key: t}}}]\n"
    laptop.write("m/a.yaml", bare.replace("spec:\n", environment))
    laptop.up("-f", "m", "--watch")
    words = "env TOKEN asks for key t of Secret s, and there is no such Secret in namespace default"
    laptop.until(lambda servers: words in servers["bare"]["message"], "what is missing")
    laptop.write("m/s.yaml", "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {t: hush}\n")
    laptop.until_ready("bare")
    assert laptop.run("call", "bare", "answer").stdout == "hush\n"
    assert laptop.url("bare") == f"http://127.0.0.1:{laptop.base}/mcp"
    assert "hush" not in laptop.output + (laptop.state / "servers.json").read_text()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_stops_everything_in_order(laptop: Laptop, number: signal.Signals):
    laptop.up(*UP_TWO).until_ready("hello", "clock")
    everything = laptop.everything()
    assert len(everything) == 5  # up, its warden, the proxy, two servers
    assert laptop.stop(number) == 0
    assert not any(map(is_alive, everything))
    assert "Traceback" not in laptop.output
    assert not (laptop.state / "servers.json").exists()


def test_a_signal_right_at_the_start_leaves_nothing_either(laptop: Laptop):
    laptop.up(*UP_TWO)
    until(lambda: (laptop.state / "pids").exists() and laptop.pids(), "the first process")
    everything = laptop.everything()
    assert laptop.stop() == 0
    assert not any(map(is_alive, everything | laptop.pids()))
    assert "Traceback" not in laptop.output


def test_a_second_ctrl_c_does_not_wait_for_a_call_that_hangs(laptop: Laptop):
    laptop.write("m/a.yaml", server("a").replace('return "yes"', "import time; print('called'); time.sleep(600)"))
    laptop.up("-f", "m").until_ready("a")
    everything = laptop.everything()
    calling = threading.Thread(target=lambda: laptop.run("call", "a", "answer"))
    calling.start()
    log = next(path for path in (laptop.state / "logs").iterdir() if path.name.startswith("a-"))
    until(lambda: "called" in log.read_text(), "the call is under way")
    laptop.process.send_signal(signal.SIGINT)
    until(lambda: "stopping" in (laptop.state / "logs/proxy.log").read_text(), "the stop")
    assert laptop.process.poll() is None
    laptop.process.send_signal(signal.SIGINT)
    assert laptop.process.wait(4) == 0
    until(lambda: not any(map(is_alive, everything)), "every process is gone", within=10)
    calling.join()


def test_a_reader_that_has_enough_ends_it_and_everything_with_it(laptop: Laptop):
    laptop.write("m/a.yaml", server("a"))
    command = [sys.executable, "-m", "fairway", "up", "-f", "m", "--port-base", str(laptop.base)]
    process = subprocess.Popen(command, cwd=laptop.directory, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert "fairway" in process.stdout.readline()
    process.stdout.close()
    assert process.stderr.read() == ""
    assert process.wait(30) == 0
    assert list((laptop.state / "pids").iterdir()) == []


def test_nothing_survives_when_it_is_killed(laptop: Laptop):
    laptop.write("m/a.yaml", server("a"))
    with_child = server("b").replace(
        "def answer", "import subprocess; child = subprocess.Popen(['sleep', '600'])\n      def answer"
    )
    laptop.write("m/b.yaml", with_child)
    laptop.up("-f", "m").until_ready("a", "b")
    everything = laptop.everything()
    (grandchild,) = [
        int(p) for p in Path(f"/proc/{laptop.pid_of('/b-')}/task").glob("*/children") for p in p.read_text().split()
    ]
    laptop.process.kill()
    laptop.process.wait()
    until(lambda: not any(map(is_alive, {*everything, grandchild})), "every process is gone", within=10)
    # and the next start finds a clean table
    laptop.up("-f", "m").until_ready("a", "b")
    assert laptop.stop() == 0


def test_a_second_one_in_the_same_directory_is_refused_with_the_pid_of_the_first(laptop: Laptop):
    laptop.write("m/a.yaml", server("a"))
    laptop.up("-f", "m").until_ready("a")
    second = laptop.run("up", "-f", "m")
    assert second.returncode == 2
    assert f"process {laptop.process.pid}" in second.stderr
    assert second.stderr.count("\n") == 1
    assert laptop.servers()["a"]["ready"]
    elsewhere = laptop.run("up", "-f", "m", "--check", "--state-dir", "other", "--port-base", str(laptop.base))
    assert elsewhere.returncode == 0, elsewhere.stdout


def test_a_taken_port_is_skipped_said_and_had_again_when_it_is_free(laptop: Laptop):
    laptop.write("m/a.yaml", server("a") + "---\n" + server("b"))
    laptop.up("-f", "m").until_ready("a", "b")
    before = {name: laptop.url(name) for name in ("a", "b")}
    assert laptop.stop() == 0
    with socket.create_server(("127.0.0.1", laptop.base)):
        laptop.up("-f", "m").until_ready("a", "b")
        said = re.search(
            rf"port {laptop.base} is taken by another program; a listens on (\d+) this time", laptop.output
        )
        assert said, laptop.output
        assert laptop.url("a") == f"http://127.0.0.1:{said[1]}/mcp"
        assert laptop.url("b") == before["b"]
        assert laptop.stop() == 0
    laptop.up("-f", "m").until_ready("a", "b")
    assert {name: laptop.url(name) for name in ("a", "b")} == before


def test_a_killed_proxy_and_a_killed_server_come_back(laptop: Laptop):
    laptop.write("m/a.yaml", server("a"))
    laptop.up("-f", "m").until_ready("a")
    for words in (["proxy", "--admin"], ["tools", "--file"]):
        pid = laptop.pid_of(*words)
        os.kill(pid, signal.SIGKILL)
        laptop.until(lambda servers: not servers["a"]["ready"], "the loss is seen")
        laptop.until_ready("a")
        assert laptop.pid_of(*words) != pid
        assert laptop.run("call", "a", "answer").stdout == "yes\n"


def test_a_port_that_another_program_takes_harms_only_its_own_server(laptop: Laptop):
    laptop.write("m/a.yaml", server("a") + "---\n" + server("b"))
    laptop.up("-f", "m").until_ready("a", "b")
    os.kill(laptop.pid_of("proxy", "--admin"), signal.SIGKILL)
    taken = until(lambda: take(laptop.base), "the port is ours before the proxy is back")
    with taken:
        words = f"port {laptop.base} on 127.0.0.1 is taken by another program"
        laptop.until(lambda servers: words in servers["a"]["message"], "the port is named")
        laptop.until_ready("b")
        assert laptop.run("call", "b", "answer").stdout == "yes\n"
    laptop.until_ready("a", "b")


def take(port: int) -> socket.socket | None:
    try:
        return socket.create_server(("127.0.0.1", port))
    except OSError:
        return None


def test_replicas_share_the_work(laptop: Laptop):
    source = server("a").replace('return "yes"', "import os; return str(os.getpid())")
    laptop.write("m/a.yaml", source.replace("spec:\n", "spec:\n  replicas: 3\n"))
    laptop.up("-f", "m").until(lambda servers: servers["a"]["status"].get("ready") == "3/3", "three replicas")
    laptop.until_ready("a")
    assert len(laptop.pids()) == 4

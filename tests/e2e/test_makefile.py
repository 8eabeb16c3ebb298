"""The targets that people type: all are there, and those that need a cluster say in one line when there is none."""

import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

from rig.api import wait_for
from rig.testcluster import RigCluster

REPOSITORY = Path(__file__).resolve().parents[2]
TARGETS = """
help up test soak lint unit coverage cluster cluster-down install run generate build image deploy docs recording
""".split()  # noqa: SIM905  as they are spoken of
NO_PORTS = "--metrics-bind-address 0 --health-probe-bind-address 0"


def environment(**more: str) -> dict[str, str]:
    # What a make around us hands down is not meant for these.
    ours = ("MAKE", "MFLAGS", "ARGS", "KUBE")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    return {**kept, **more}


def make(*arguments: str, **more: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        ["make", *arguments],
        cwd=REPOSITORY,
        env=environment(**more),
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )


def test_help_names_every_target_and_every_benchmark() -> None:
    said = make("help").stdout
    listed = dict(re.findall(r"^  make ([a-z-]+)  +(\S.*)$", said, re.MULTILINE))
    assert set(TARGETS) <= listed.keys()
    benches = re.search(r"make bench-NAME +one benchmark: (.*)", said)
    assert benches
    assert {"runtime", "proxy", "rig", "up"} <= set(benches[1].split())


@pytest.mark.parametrize("target", ["install", "run", "deploy"])
def test_without_a_cluster_a_target_says_so_in_one_line(target: str, tmp_path: Path) -> None:
    done = make(target, KUBECONFIG=str(tmp_path / "nowhere"))
    assert done.returncode == 2
    said = [line for line in done.stderr.splitlines() if not line.startswith("make")]
    assert len(said) == 1
    assert "no such file; point $KUBECONFIG" in said[0]


def test_the_wheel_is_built() -> None:
    done = make("build")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].endswith(".whl")


def test_the_documentation_is_a_site_without_a_broken_link() -> None:
    done = make("docs")
    assert done.returncode == 0, done.stdout + done.stderr
    pages = REPOSITORY / "build" / "site"
    assert {"index.html", "reference/mcpserver.html", "tutorials/first-server.html"} <= {
        str(page.relative_to(pages)) for page in pages.rglob("*.html")
    }
    elsewhere = re.compile(r'<(?:script|link|img|iframe)[^>]+(?:src|href)="(?:https?:)?//[^"]+')
    assert [found[0] for page in pages.rglob("*.html") if (found := elsewhere.findall(page.read_text()))] == []


def test_the_kinds_are_installed_and_the_operator_runs_here(rig_api: RigCluster, tmp_path: Path) -> None:
    kubeconfig = str(rig_api.kubeconfig)
    installed = make("install", KUBECONFIG=kubeconfig)
    assert installed.returncode == 0, installed.stderr
    assert "CustomResourceDefinition/mcpservers.fairway.dev" in installed.stdout
    log = tmp_path / "log"
    with log.open("wb") as output:
        running = subprocess.Popen(
            # It is to find no work: other tests have operators of their own.
            ["make", "run", f"ARGS={NO_PORTS} --selector fairway-test.dev/nobody --log-format json"],
            cwd=REPOSITORY,
            env=environment(KUBECONFIG=kubeconfig),
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        wait_for("the operator's caches", lambda: "caches are filled" in log.read_text(), seconds=60)
        os.killpg(running.pid, signal.SIGINT)  # as ctrl-c does
        running.wait(30)
    finally:
        if running.poll() is None:
            os.killpg(running.pid, signal.SIGKILL)
            running.wait()
    assert '"stopped"' in log.read_text()
    assert "Traceback" not in log.read_text()


def test_a_cluster_comes_and_goes(rig_api: RigCluster, tmp_path: Path) -> None:
    state = str(tmp_path / "rig")
    up = make("cluster", f"ARGS=--quiet --owner {os.getpid()}", RIG_STATE=state)
    try:
        assert up.returncode == 0, up.stderr
        assert (tmp_path / "rig" / "kubeconfig").exists()
    finally:
        down = make("cluster-down", "ARGS=--wipe", RIG_STATE=state)
    assert down.returncode == 0, down.stderr
    assert not (tmp_path / "rig").exists()

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rig.state import REPOSITORY

TESTS = """
def test_needs_a_cluster(rig_api):
    raise AssertionError("this must not run")

def test_needs_none():
    pass
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["rig.pytest_plugin"]\n')
    (tmp_path / "test_it.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n  cluster: x\n  node: x\n")
    return tmp_path


def run(project: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    # Without Go, without anything to fetch it with, and without a cache: the rig cannot run.
    environ = {
        **os.environ,
        "PYTHONPATH": str(REPOSITORY),
        "PATH": "",
        "XDG_CACHE_HOME": str(project / "cache"),
        "UV_OFFLINE": "1",
        "UV_CACHE_DIR": str(project / "uv"),
        "PIP_NO_INDEX": "1",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        **environment,
    }
    for name in ("RIG_BIN", "RIG_KUBECONFIG", "PIP_FIND_LINKS", "UV_FIND_LINKS", "FAIRWAY_REQUIRE_CLUSTER"):
        if name not in environment:
            environ.pop(name, None)
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments],
        cwd=project,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )


def test_where_the_rig_cannot_run_tests_are_skipped_loudly(project: Path) -> None:
    done = run(project)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed, 1 skipped" in done.stdout
    (line,) = [line for line in done.stdout.splitlines() if "UNTESTED" in line]
    assert "1 cluster test" in line
    assert "Go" in done.stdout.partition("UNTESTED")[2]


def test_processes_that_share_the_tests_say_it_in_one_line_together(project: Path) -> None:
    (project / "test_more.py").write_text(TESTS)
    done = run(project, "-p", "xdist", "--numprocesses", "2", "--dist", "loadfile")
    assert done.returncode == 0, done.stdout + done.stderr
    (line,) = [line for line in done.stdout.splitlines() if "UNTESTED" in line]
    assert "2 cluster tests" in line


def test_one_reason_is_one_line_for_both_tiers(project: Path) -> None:
    (project / "test_it.py").write_text(TESTS + "def test_needs_a_node(rig_node):\n    pass\n")
    done = run(project)
    assert "1 passed, 2 skipped" in done.stdout
    (line,) = [line for line in done.stdout.splitlines() if "UNTESTED" in line]
    assert "1 cluster tests and 1 node tests need a real Kubernetes" in line


def test_where_a_cluster_is_required_a_skip_is_a_failure(project: Path) -> None:
    done = run(project, FAIRWAY_REQUIRE_CLUSTER="1")
    assert done.returncode == 1
    assert "FAIRWAY_REQUIRE_CLUSTER=1" in done.stdout
    assert "1 failed, 1 passed" in done.stdout or "1 passed, 1 error" in done.stdout


def test_tests_without_a_cluster_never_ask_for_one(project: Path) -> None:
    done = run(project, "-k", "needs_none")
    assert "UNTESTED" not in done.stdout
    assert not (project / "cache").exists()


def test_the_fixture_is_the_mark(project: Path) -> None:
    done = run(project, "-m", "not cluster")
    assert "1 passed, 1 deselected" in done.stdout


def test_a_mistake_of_the_user_is_no_skip(project: Path) -> None:
    done = run(project, RIG_BIN=str(project))
    assert done.returncode == 4
    assert "RIG_BIN" in done.stdout + done.stderr


def test_a_kubeconfig_that_is_not_there_is_named(project: Path) -> None:
    done = run(project, RIG_KUBECONFIG=str(project / "nope"))
    assert done.returncode != 0
    assert "there is no kubeconfig" in done.stdout

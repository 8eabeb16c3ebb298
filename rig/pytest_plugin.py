"""pytest fixtures: one real cluster of each tier for a whole session, or a loud line about what stays untested."""

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from rig.binary import ensure_binaries, ensure_policy_enforcer
from rig.crds import apply_crds, default_crds
from rig.errors import CannotRunError, RigError
from rig.gomodule import discard_private_caches
from rig.machine import require_linux, require_node
from rig.progress import Progress
from rig.state import State
from rig.testcluster import RigCluster, run_rig

MARKS = {"rig_api": "cluster", "rig_node": "node"}
UNTESTED = "rig_untested"


@dataclass
class Session:
    """What this test session found out: which tier cannot run here and why, and which tests were left out for it."""

    unavailable: dict[str, CannotRunError] = field(default_factory=dict)
    untested: dict[str, dict[str, int]] = field(default_factory=dict)
    """Reason, in one line -> mark -> how many tests."""

    def leave_out(self, mark: str, reason: str, count: int = 1) -> None:
        marks = self.untested.setdefault(reason, {})
        marks[mark] = marks.get(mark, 0) + count


SESSION = pytest.StashKey[Session]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[SESSION] = Session()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # Before -m is looked at: who uses the fixture carries the mark.
    for item in items:
        for fixture in _tiers(item):
            item.add_marker(MARKS[fixture])


def pytest_collection_finish(session: pytest.Session) -> None:
    # Here and not in the fixture: building takes minutes, and a test has a time limit.
    if session.config.option.collectonly:
        return
    needed = {name for item in session.items for name in _tiers(item)}
    given = _given_settings()
    state = session.config.stash[SESSION]
    with _visible(session.config):
        if needed and not given:
            _try(state, needed, _prepare_api)
        if "rig_node" in needed - state.unavailable.keys() and not (given and given.node):
            _try(state, {"rig_node"}, _prepare_node)
        discard_private_caches()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    state = item.config.stash[SESSION]
    for fixture in _tiers(item):
        problem = state.unavailable.get(fixture)
        if problem is None:
            continue
        state.leave_out(MARKS[fixture], _in_one_line(problem))
        if os.environ.get("FAIRWAY_REQUIRE_CLUSTER") == "1":
            pytest.fail(f"FAIRWAY_REQUIRE_CLUSTER=1, but {problem}", pytrace=False)
        pytest.skip(problem.problem)


def pytest_sessionfinish(session: pytest.Session) -> None:
    # One of several processes that share the tests tells the one that has the screen.
    told = getattr(session.config, "workeroutput", None)
    if told is not None:
        told[UNTESTED] = session.config.stash[SESSION].untested


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    state = node.config.stash[SESSION]
    for reason, marks in getattr(node, "workeroutput", {}).get(UNTESTED, {}).items():
        for mark, count in marks.items():
            state.leave_out(mark, reason, count)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    # One line for each reason, whichever tests it meets.
    for reason, counts in config.stash[SESSION].untested.items():
        which = " and ".join(f"{count} {mark} tests" for mark, count in counts.items())
        text = f"UNTESTED: {which} need a real Kubernetes. {reason}"
        terminalreporter.write_line(text, red=True, bold=True)


def _in_one_line(problem: CannotRunError) -> str:
    """What a compiler or a package manager said is only begun; the command that failed shows all of it."""
    begun = " ".join(" ".join(problem.problem.split("\n")[:2]).split())
    return begun + (f"; fix: {problem.fix}" if problem.fix else "")


def can_run(config: pytest.Config, fixture: str) -> bool:
    """Whether this machine has that tier; for fixtures that begin something before a test asks for it."""
    return fixture not in config.stash[SESSION].unavailable


@pytest.fixture(scope="session")
def rig_api() -> Iterator[RigCluster]:
    """etcd, kube-apiserver, kube-controller-manager and kube-scheduler with the project's CRDs; no node."""
    yield from _cluster(node=False)


@pytest.fixture(scope="session")
def rig_node() -> Iterator[RigCluster]:
    """The same with a node: pods run. Needs root."""
    yield from _cluster(node=True)


@pytest.fixture
def rig_namespace(rig_api: RigCluster) -> Iterator[str]:
    """A namespace of the API tier for one test."""
    name = rig_api.namespace()
    yield name
    rig_api.delete_namespace(name)


@pytest.fixture
def rig_node_namespace(rig_node: RigCluster) -> Iterator[str]:
    """A namespace of the node tier for one test."""
    name = rig_node.namespace()
    yield name
    rig_node.delete_namespace(name)


def _cluster(*, node: bool) -> Iterator[RigCluster]:
    with tempfile.TemporaryDirectory(prefix="fairway-rig-") as directory:
        given = _given_cluster(Path(directory), node=node)
        if given is not None:
            yield given
            given.close()
            return
        state = State(root=Path(directory) / "rig")
        tier = ["--node"] if node else []
        try:
            run_rig("up", *tier, "--quiet", "--owner", str(os.getpid()), state=state)
            yield RigCluster.at(state.kubeconfig, directory=Path(directory) / "session", owned=True)
        finally:
            run_rig("down", "--wipe", state=state)


@dataclass(frozen=True)
class Given:
    """The running cluster that RIG_KUBECONFIG names."""

    kubeconfig: Path
    node: bool


def _given_settings() -> Given | None:
    path = os.environ.get("RIG_KUBECONFIG")
    if not path:
        return None
    settings = State(root=Path(path).absolute().parent).settings()
    # A cluster that somebody else made is taken to have nodes.
    return Given(kubeconfig=Path(path), node=settings is None or settings.node)


def _given_cluster(directory: Path, *, node: bool) -> RigCluster | None:
    given = _given_settings()
    if given is None or (node and not given.node):
        return None
    cluster = RigCluster.at(given.kubeconfig, directory=directory / "session", owned=False)
    apply_crds(cluster.api, default_crds())
    return cluster


def _prepare_api() -> None:
    require_linux()
    ensure_binaries(progress=Progress())


def _prepare_node() -> None:
    require_node(progress=Progress())
    # What it lacks is said when it comes up; building it takes longer than a test may.
    with contextlib.suppress(RigError):
        ensure_policy_enforcer(progress=Progress())


def _tiers(item: pytest.Item) -> list[str]:
    return [name for name in getattr(item, "fixturenames", ()) if name in MARKS]


def _try(state: Session, fixtures: set[str], prepare: Callable[[], None]) -> None:
    try:
        prepare()
    except CannotRunError as error:
        state.unavailable.update(dict.fromkeys(fixtures, error))
    except RigError as error:
        # Not this machine's fault: hiding it behind a skip would be wrong.
        raise pytest.UsageError(str(error)) from None


def _visible(config: pytest.Config) -> contextlib.AbstractContextManager[None]:
    """Let the progress of a build through to the terminal."""
    capture = config.pluginmanager.getplugin("capturemanager")
    return capture.global_and_fixture_disabled() if capture else contextlib.nullcontext()

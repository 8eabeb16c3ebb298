"""The documentation does what it says: every code block is run, or says why not."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from fairway.api import manifest
from rig.testcluster import RigCluster
from tests.blocks.fence import Block, Page, steps
from tests.blocks.pages import pages
from tests.blocks.session import Session, environment
from tests.e2e.laptop import free_port_base
from tests.installed import InstalledFairway

pytestmark = pytest.mark.e2e

COMMANDS = frozenset({"console", "sh"})
PAGES = pages()


def of(place: str) -> list[Page]:
    return [page for page in PAGES if page.place == place]


@pytest.mark.parametrize("page", of(""), ids=lambda page: str(page.path))
def test_a_page_without_commands_has_blocks_that_can_be_read(page: Page, tmp_path: Path) -> None:
    for block in page.blocks:
        if not block.left_out:
            assert block.language not in COMMANDS, f"{block}: say where it runs: <!-- runs on: laptop -->"
            understood(block, tmp_path)


@pytest.mark.parametrize("page", of("laptop"), ids=lambda page: str(page.path))
def test_a_page_for_a_laptop_does_what_it_shows(page: Page, tmp_path: Path) -> None:
    surroundings = environment(tmp_path, kubeconfig=None)
    renamed = {"/home/you": surroundings["HOME"], "/home/you/demo": str(tmp_path)}
    with Session(tmp_path, free_port_base(), surroundings, renamed) as session:
        follow(page, session)


@pytest.fixture(scope="module")
def cluster(rig_node: RigCluster, fairway: InstalledFairway) -> Iterator[tuple[RigCluster, str]]:
    del fairway  # it only has to be there
    namespace = rig_node.namespace("docs")
    yield rig_node, namespace
    rig_node.delete_namespace(namespace)


@pytest.mark.parametrize("page", of("cluster"), ids=lambda page: str(page.path))
def test_a_page_for_a_cluster_does_what_it_shows(page: Page, cluster: tuple[RigCluster, str], tmp_path: Path) -> None:
    rig, namespace = cluster
    kubeconfig = yaml.safe_load(rig.kubeconfig.read_text())
    for context in kubeconfig["contexts"]:
        context["context"]["namespace"] = namespace
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(kubeconfig))
    programs = () if rig.state is None else (rig.state.bin,)
    surroundings = environment(tmp_path, kubeconfig=tmp_path / "kubeconfig", programs=programs)
    # only where a name of a namespace can stand: `default` is a word as well
    renamed = {".default.svc": f".{namespace}.svc", "namespace default": f"namespace {namespace}"}
    with Session(tmp_path, free_port_base(), surroundings, renamed) as session:
        follow(page, session)


def follow(page: Page, session: Session) -> None:
    """As a reader would: files are written, commands typed."""
    for block in page.blocks:
        if block.left_out:
            continue
        if block.language not in COMMANDS:
            understood(block, session.folder)
            continue
        for step in steps(block):
            try:
                session.run(step)
            except AssertionError as error:
                raise AssertionError(f"{block}\n{error}") from None


def understood(block: Block, folder: Path) -> None:
    """A block that is no command: a file of the reader's, or a part of one."""
    match block.language:
        case "yaml":
            documents = list(yaml.safe_load_all(block.text))
            assert documents, block
            if block.title.startswith("broken"):
                with pytest.raises(manifest.InvalidManifest):
                    manifest.parse(block.text, file=str(block))
            elif all(isinstance(d, dict) and "apiVersion" in d for d in documents):
                assert manifest.parse(block.text, file=str(block))
        case "json":
            json.loads(block.text)
        case "python":
            found: dict[str, Any] = {}
            exec(compile(block.text, str(block), "exec"), found)
        case "promql" | "text":
            raise AssertionError(f"{block}: nothing runs this; say why: <!-- not run: REASON -->")
    if block.title:
        file = folder / block.title
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(block.text + "\n")


def test_most_blocks_are_run() -> None:
    """How many are, and why the rest is not, stands at the end of every test run that has these tests."""
    blocks = [block for page in PAGES for block in page.blocks]
    assert sum(not block.left_out for block in blocks) > 3 * sum(bool(block.left_out) for block in blocks)

"""That a page which says something untrue is noticed: without this, the tests of the documentation could not fail."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.blocks.fence import Step
from tests.blocks.session import Differs, Session, environment


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    surroundings = {**environment(tmp_path, kubeconfig=None), "WORD": "here"}
    with Session(tmp_path, 20100, surroundings, {"/home/you": str(tmp_path / ".home")}) as session:
        yield session


def test_what_is_shown_has_to_be_said(session: Session):
    session.run(Step("echo $WORD", "here"))
    session.run(Step("echo gone >&2; false", "gone"))
    with pytest.raises(Differs, match="the page shows\nthere\n--- it said\nhere"):
        session.run(Step("echo $WORD", "there"))


def test_where_nothing_is_shown_a_command_has_to_succeed(session: Session):
    session.run(Step("true", None))
    with pytest.raises(Differs, match="ended with 1"):
        session.run(Step("false | cat", None))


def test_ports_and_folders_are_those_of_the_page(session: Session):
    session.run(Step("echo http://127.0.0.1:7003/mcp $HOME", "http://127.0.0.1:7003/mcp /home/you"))
    session.run(Step("echo http://127.0.0.1:7003/mcp | grep -c 20102", "1"))


def test_a_page_is_read_in_a_clone_of_the_repository(session: Session):
    session.run(Step("head -1 examples/README.md | grep -c Generated", "1"))

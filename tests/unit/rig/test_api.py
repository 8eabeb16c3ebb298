from pathlib import Path

import pytest

from rig.api import condition_of, read_manifests, wait_for
from rig.errors import RigError


def test_manifests_are_read_from_every_file_in_order(tmp_path: Path) -> None:
    (tmp_path / "b.yaml").write_text("apiVersion: v1\nkind: B\nmetadata: {name: b}\n---\n---\n")
    (tmp_path / "a.yml").write_text("{apiVersion: v1, kind: A, metadata: {name: a}}")
    (tmp_path / "readme.md").write_text("not yaml: [")
    assert [manifest["kind"] for manifest in read_manifests(tmp_path)] in (["A", "B"], ["B", "A"])
    assert [manifest["kind"] for manifest in read_manifests(tmp_path / "b.yaml")] == ["B"]


@pytest.mark.parametrize("text", ["a: [", "just text", "kind: A", "- 1"])
def test_what_is_no_manifest_is_refused_with_its_file(tmp_path: Path, text: str) -> None:
    (tmp_path / "bad.yaml").write_text(text)
    with pytest.raises(RigError, match=r"bad\.yaml"):
        read_manifests(tmp_path)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(RigError, match=r"there is no .*nope\.yaml"):
        read_manifests(tmp_path / "nope.yaml")


def test_waiting_ends_with_the_first_answer() -> None:
    answers = iter([None, False, [], "yes"])
    assert wait_for("it", lambda: next(answers), seconds=10) == "yes"


def test_waiting_in_vain_says_for_what() -> None:
    with pytest.raises(RigError, match="in vain for the sun"):
        wait_for("the sun", lambda: None, seconds=0)


def test_waiting_stops_when_it_is_in_vain() -> None:
    def gone() -> None:
        raise RigError("etcd stopped by itself")

    with pytest.raises(RigError, match="stopped by itself"):
        wait_for("it", lambda: None, seconds=60, meanwhile=gone)


def test_conditions_are_looked_up_by_type() -> None:
    manifest = {"status": {"conditions": [{"type": "Ready", "status": "False"}, {"type": "Other", "status": "True"}]}}
    assert condition_of(manifest, "Ready") == "False"
    assert condition_of(manifest, "Missing") == ""
    assert condition_of({"status": {"conditions": None}}, "Ready") == ""
    assert condition_of({}, "Ready") == ""

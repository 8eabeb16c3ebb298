"""Children: what is stamped on them, and what no child may be."""

import pytest

from fairway.kube.resource import CONFIG_MAP, Obj
from fairway.runtime.child import being_deleted, children, controller_uid, digest, owner_reference
from tests.unit.runtime.toys import CATALOGUE, TOY, config_map

HASH = "example.dev/hash"
OWNER: Obj = {
    "apiVersion": TOY.api_version,
    "kind": "Toy",
    "metadata": {"name": "t", "namespace": "default", "uid": "u"},
}


def child(**metadata: object) -> Obj:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", **metadata}, "data": {"a": "1"}}


def stamped(obj: Obj) -> Obj:
    ((ref, made),) = children(OWNER, [obj], CATALOGUE, hash_annotation=HASH)
    assert ref == CONFIG_MAP.ref("default", "c")
    return made


def test_a_child_gets_namespace_controller_and_digest_and_the_original_stays() -> None:
    original = child()
    made = stamped(original)
    assert made["metadata"]["namespace"] == "default"
    assert made["metadata"]["ownerReferences"] == [owner_reference(OWNER)]
    assert controller_uid(made) == "u"
    assert original == child()


def test_the_digest_follows_every_field_and_nothing_else() -> None:
    def hash_of(obj: Obj) -> str:
        return str(stamped(obj)["metadata"]["annotations"][HASH])

    assert hash_of(child()) == hash_of(child())
    assert hash_of(child(labels={"a": "1"})) != hash_of(child())
    assert hash_of({**child(), "data": {}}) != hash_of(child())
    assert digest({"a": 1, "b": 2}) == digest({"b": 2, "a": 1})


def test_own_annotations_and_references_are_kept() -> None:
    other = {"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "x"}
    made = stamped(child(annotations={"mine": "yes"}, ownerReferences=[other]))
    assert made["metadata"]["annotations"]["mine"] == "yes"
    assert [reference["uid"] for reference in made["metadata"]["ownerReferences"]] == ["x", "u"]


def test_without_an_annotation_name_there_is_no_digest() -> None:
    ((_, made),) = children(OWNER, [child()], CATALOGUE, hash_annotation=None)
    assert "annotations" not in made["metadata"]


@pytest.mark.parametrize(
    ("objects", "message"),
    [
        ([child(), child()], "desired twice"),
        ([child(namespace="elsewhere")], "outside namespace 'default'"),
        ([{**child(), "stringData": {"a": "b"}}], "stringData"),
    ],
)
def test_what_no_child_may_be_is_a_bug(objects: list[Obj], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        children(OWNER, objects, CATALOGUE, hash_annotation=HASH)


def test_an_owner_that_does_not_control_is_no_controller() -> None:
    obj = config_map(owner="o")
    assert controller_uid(obj) == "o"
    del obj["metadata"]["ownerReferences"][0]["controller"]
    assert controller_uid(obj) is None
    assert controller_uid(config_map()) is None


def test_deletion_shows_by_its_timestamp() -> None:
    assert not being_deleted(child())
    assert being_deleted(child(deletionTimestamp="2026-01-01T00:00:00Z"))

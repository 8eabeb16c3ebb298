"""Resources: URLs that nothing in a name can climb out of, and looking kinds up."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairway.kube.resource import (
    CLUSTER_ROLE,
    CONFIG_MAP,
    DEPLOYMENT,
    NAMESPACE,
    POD,
    WELL_KNOWN,
    Catalogue,
    Resource,
    UnknownResource,
)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (CONFIG_MAP.path(), "/api/v1/configmaps"),
        (CONFIG_MAP.path("default"), "/api/v1/namespaces/default/configmaps"),
        (DEPLOYMENT.path("d", "x"), "/apis/apps/v1/namespaces/d/deployments/x"),
        (DEPLOYMENT.path("d", "x", "scale"), "/apis/apps/v1/namespaces/d/deployments/x/scale"),
        (NAMESPACE.path(None, "x"), "/api/v1/namespaces/x"),
        (NAMESPACE.path("ignored", "x"), "/api/v1/namespaces/x"),
        (CLUSTER_ROLE.path(None, "system:node"), "/apis/rbac.authorization.k8s.io/v1/clusterroles/system:node"),
    ],
)
def test_paths(path: str, expected: str) -> None:
    assert path == expected


def test_an_object_in_no_namespace_is_a_bug() -> None:
    with pytest.raises(ValueError, match="lives in a namespace"):
        POD.path(None, "x")


@given(st.text(max_size=20))
def test_no_name_leaves_its_segment(name: str) -> None:
    try:
        path = POD.path("default", name)
    except (ValueError, UnicodeEncodeError):
        return
    head, slash, last = path.rpartition("/")
    assert (head, slash) == ("/api/v1/namespaces/default/pods", "/")
    assert last not in ("", ".", "..")
    assert not set(last) & set("/?#% \\") - {"%"}


@pytest.mark.parametrize("name", ["", ".", ".."])
def test_names_that_are_steps_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="no name"):
        POD.path("default", name)


def test_kinds_are_found_by_what_stands_in_the_object() -> None:
    assert WELL_KNOWN.of({"apiVersion": "apps/v1", "kind": "Deployment"}) is DEPLOYMENT
    own = Resource("example.dev", "v1", "Toy", "toys")
    assert WELL_KNOWN.plus([own])["example.dev/v1", "Toy"] is own
    with pytest.raises(UnknownResource, match=r"apiVersion 'example\.dev/v1', kind 'Toy'"):
        WELL_KNOWN.of({"apiVersion": "example.dev/v1", "kind": "Toy"})
    with pytest.raises(UnknownResource):
        Catalogue().of({"kind": 3})


def test_references_know_the_namespace_and_say_what_they_are() -> None:
    ref = WELL_KNOWN.ref({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}}, default_namespace="d")
    assert (ref, str(ref), ref.path) == (POD.ref("d", "p"), "Pod/p", "/api/v1/namespaces/d/pods/p")
    assert NAMESPACE.ref("whatever", "n").namespace == ""

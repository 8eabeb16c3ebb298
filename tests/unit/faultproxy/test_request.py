"""Requests told apart by what they do to which object."""

import pytest

from tests.faultproxy.request import Request, classify

APPLY = {"content-type": "application/apply-patch+yaml", "user-agent": "toy/1"}


def of(method: str, target: str, **headers: str) -> Request:
    return classify(1, method, target, {name.replace("_", "-"): value for name, value in headers.items()})


@pytest.mark.parametrize(
    ("method", "target", "content_type", "verb"),
    [
        ("GET", "/api/v1/namespaces/a/configmaps/x", "", "get"),
        ("GET", "/api/v1/namespaces/a/configmaps?limit=500", "", "list"),
        ("GET", "/api/v1/configmaps?watch=1", "", "watch"),
        ("GET", "/api/v1/configmaps?watch=true", "", "watch"),
        ("GET", "/api/v1/configmaps?watch=0", "", "list"),
        ("POST", "/api/v1/namespaces/a/configmaps", "application/json", "create"),
        ("PUT", "/api/v1/namespaces/a/configmaps/x", "application/json", "update"),
        ("PATCH", "/api/v1/namespaces/a/configmaps/x", "application/merge-patch+json", "patch"),
        ("PATCH", "/api/v1/namespaces/a/configmaps/x", "application/apply-patch+yaml", "apply"),
        ("DELETE", "/api/v1/namespaces/a/configmaps/x", "", "delete"),
        ("DELETE", "/api/v1/namespaces/a/configmaps", "", "deletecollection"),
    ],
)
def test_the_verb_is_the_one_that_rbac_would_name_but_applies_are_told_from_patches(
    method: str, target: str, content_type: str, verb: str
) -> None:
    assert of(method, target, content_type=content_type).verb == verb


@pytest.mark.parametrize(
    ("target", "resource", "namespace", "name", "subresource"),
    [
        ("/api/v1/namespaces/a/pods/x/log", "pods", "a", "x", "log"),
        ("/apis/apps/v1/namespaces/a/deployments/x/status", "deployments.apps", "a", "x", "status"),
        ("/apis/apps/v1/deployments", "deployments.apps", "", "", ""),
        ("/api/v1/namespaces", "namespaces", "", "", ""),
        ("/api/v1/namespaces/a", "namespaces", "", "a", ""),
        ("/api/v1/namespaces/a/status", "namespaces", "", "a", "status"),
        ("/api/v1/namespaces/a/finalize", "namespaces", "", "a", "finalize"),
        (
            "/apis/rbac.authorization.k8s.io/v1/clusterroles/x%3Ay",
            "clusterroles.rbac.authorization.k8s.io",
            "",
            "x:y",
            "",
        ),
        ("/api/v1/namespaces/a/pods/x:80/proxy/v1/status", "pods", "a", "x:80", "proxy/v1/status"),
    ],
)
def test_the_path_names_the_object(target: str, resource: str, namespace: str, name: str, subresource: str) -> None:
    request = of("GET", target)
    found = (request.resource, request.namespace, request.name, request.subresource)
    assert found == (resource, namespace, name, subresource)


@pytest.mark.parametrize("target", ["/version", "/readyz", "/api", "/api/v1", "/apis", "/apis/apps/v1", "/"])
def test_a_path_without_a_resource_keeps_its_method(target: str) -> None:
    request = of("GET", target)
    assert (request.verb, request.resource) == ("get", "")
    assert not request.is_write


def test_the_field_manager_and_the_user_agent_are_known() -> None:
    request = classify(7, "PATCH", "/api/v1/namespaces/a/configmaps/x?fieldManager=me&force=true", APPLY)
    assert (request.number, request.manager, request.user_agent, request.is_write) == (7, "me", "toy/1", True)


def test_a_dry_run_is_no_write() -> None:
    assert not classify(1, "PATCH", "/api/v1/namespaces/a/configmaps/x?dryRun=All", APPLY).is_write


def test_a_watch_says_whether_it_wants_initial_events() -> None:
    assert of("GET", "/api/v1/pods?watch=1&sendInitialEvents=true").initial_events
    assert not of("GET", "/api/v1/pods?watch=1").initial_events


def test_it_prints_as_one_readable_line() -> None:
    assert str(
        of("PATCH", "/apis/apps/v1/namespaces/a/deployments/x/status", content_type="application/apply-patch+yaml")
    ) == ("#1 apply deployments.apps/a/x (status)")

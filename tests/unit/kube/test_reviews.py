"""Reviews: what is asked, and that nothing but a clear yes is a yes."""

from collections.abc import Mapping
from typing import Any

import orjson
import pytest

from fairway.kube.config import ClusterAccess
from fairway.kube.credentials import Credential, Fixed
from fairway.kube.errors import Unreachable
from fairway.kube.http import Answer
from fairway.kube.resource import DEPLOYMENT, POD
from fairway.kube.reviews import AccessVerdict, Deed, Reviews, TokenVerdict, User
from fairway.kube.transport import Transport

pytestmark = pytest.mark.anyio

ANN = {"username": "ann", "uid": "1", "groups": ["a", "b"], "extra": {"scope": ["x"]}}


class Answering(Transport):
    """Gives one answer, and remembers what it was asked."""

    def __init__(self, answer: bytes) -> None:
        super().__init__(ClusterAccess("http://127.0.0.1:1", "test", Fixed(Credential())), user_agent="t")
        self._given = answer
        self.asked: list[tuple[str, str, Any]] = []

    async def request(self, method: str, url: str, *, body: bytes | None = None, **_: Any) -> Answer:  # type: ignore[override]
        self.asked.append((method, url, orjson.loads(body or b"")))
        return Answer(201, (), self._given)


def status(**fields: Any) -> bytes:
    return orjson.dumps({"status": fields})


async def test_a_good_token_names_its_user() -> None:
    transport = Answering(status(authenticated=True, user=ANN, audiences=["me", "you"]))
    verdict = await Reviews(transport).token("secret", audiences=["me"])
    assert verdict == TokenVerdict(User("ann", "1", ("a", "b"), {"scope": ["x"]}), ("me", "you"))
    assert transport.asked == [
        (
            "POST",
            "/apis/authentication.k8s.io/v1/tokenreviews",
            {
                "apiVersion": "authentication.k8s.io/v1",
                "kind": "TokenReview",
                "spec": {"token": "secret", "audiences": ["me"]},
            },
        )
    ]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ({"error": "expired"}, "expired"),
        ({}, "the token is not known"),
        ({"authenticated": "true", "user": ANN, "audiences": ["me"]}, "the token is not known"),
        ({"authenticated": True, "user": ANN}, "not meant for me"),
        ({"authenticated": True, "user": ANN, "audiences": ["you"]}, "not meant for me"),
        ({"authenticated": True, "user": ANN, "audiences": "me"}, "not meant for me"),
    ],
)
async def test_anything_but_a_clear_yes_is_no_user(answer: Mapping[str, Any], reason: str) -> None:
    verdict = await Reviews(Answering(status(**answer))).token("t", audiences=["me"])
    assert verdict.user is None
    assert reason in verdict.reason


async def test_without_audiences_the_servers_own_are_meant() -> None:
    verdict = await Reviews(Answering(status(authenticated=True, user={"username": "bob"}))).token("t")
    assert verdict.user == User("bob")


@pytest.mark.parametrize("user", [None, {}, [], {"username": ""}, {"username": 7}])
async def test_a_yes_that_names_nobody_is_no_answer(user: Any) -> None:
    with pytest.raises(Unreachable, match="names no user"):
        await Reviews(Answering(status(authenticated=True, user=user))).token("t")


@pytest.mark.parametrize("answer", [b"", b"[]", b"{}", b'{"status":"yes"}', b'{"status":[]}'])
async def test_an_answer_that_is_no_review_is_none(answer: bytes) -> None:
    with pytest.raises(Unreachable, match="no SubjectAccessReview"):
        await Reviews(Answering(answer)).access(User("ann"), Deed("get", POD))


async def test_access_is_asked_for_somebody() -> None:
    transport = Answering(status(allowed=True, reason="by role"))
    user = User("ann", "1", ("a",), {"scope": ["x"]})
    verdict = await Reviews(transport).access(user, Deed("create", POD, "ns", "p-0", "attach"))
    assert verdict == AccessVerdict(True, "by role")
    ((_, url, asked),) = transport.asked
    assert url == "/apis/authorization.k8s.io/v1/subjectaccessreviews"
    assert asked["spec"] == {
        "user": "ann",
        "uid": "1",
        "groups": ["a"],
        "extra": {"scope": ["x"]},
        "resourceAttributes": {
            "verb": "create",
            "version": "v1",
            "resource": "pods",
            "subresource": "attach",
            "namespace": "ns",
            "name": "p-0",
        },
    }


async def test_access_is_asked_for_oneself() -> None:
    transport = Answering(status(allowed=False, evaluationError="no such role"))
    assert await Reviews(transport).own_access(Deed("list", DEPLOYMENT)) == AccessVerdict(False, "no such role")
    ((_, url, asked),) = transport.asked
    assert url == "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    assert asked["spec"]["resourceAttributes"]["group"] == "apps"


@pytest.mark.parametrize("answer", [{}, {"allowed": "yes"}, {"allowed": True, "denied": True}, {"allowed": None}])
async def test_only_an_allowance_without_a_denial_allows(answer: Mapping[str, Any]) -> None:
    assert not (await Reviews(Answering(status(**answer))).own_access(Deed("get", POD))).allowed

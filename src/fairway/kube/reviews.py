"""Questions to the API server about others: whose token is this, and may they do that?"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from fairway.kube.errors import Unreachable
from fairway.kube.resource import Obj, Resource
from fairway.kube.transport import Transport


@dataclass(frozen=True, slots=True)
class User:
    """Somebody whom the API server knows."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, Sequence[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TokenVerdict:
    """`user` is None for a token that is no good, and `reason` says why, as far as the server tells."""

    user: User | None
    audiences: tuple[str, ...] = ()
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Deed:
    """What somebody wants to do."""

    verb: str
    resource: Resource
    namespace: str = ""
    """Empty means all of them."""
    name: str = ""
    subresource: str = ""


@dataclass(frozen=True, slots=True)
class AccessVerdict:
    allowed: bool
    reason: str = ""


class Reviews:
    """Each costs one request, and is never repeated on a doubt: whoever asks often has to remember answers."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def token(self, token: str, *, audiences: Sequence[str] = ()) -> TokenVerdict:
        """A TokenReview, for the API server's own audiences if none are given."""
        if not token:
            return TokenVerdict(None, reason="there is no token")
        status = await self._ask("authentication.k8s.io", "TokenReview", {"token": token, "audiences": list(audiences)})
        accepted = tuple(_strings(status.get("audiences")))
        error = str(status.get("error") or "")
        if status.get("authenticated") is not True:
            return TokenVerdict(None, accepted, error or "the token is not known")
        # a webhook authenticator that does not know of audiences answers without them
        if audiences and not set(audiences) & set(accepted):
            return TokenVerdict(None, accepted, f"the token is not meant for {' or '.join(audiences)}")
        return TokenVerdict(_user(status.get("user")), accepted, error)

    async def access(self, user: User, deed: Deed) -> AccessVerdict:
        """A SubjectAccessReview. Whoever cannot be judged is not allowed."""
        spec: Obj = {"user": user.name, "uid": user.uid, "groups": list(user.groups)}
        spec["extra"] = {key: list(values) for key, values in user.extra.items()}
        return _verdict(await self._ask("authorization.k8s.io", "SubjectAccessReview", spec | _attributes(deed)))

    async def own_access(self, deed: Deed) -> AccessVerdict:
        """A SelfSubjectAccessReview: may we?"""
        return _verdict(await self._ask("authorization.k8s.io", "SelfSubjectAccessReview", _attributes(deed)))

    async def _ask(self, group: str, kind: str, spec: Obj) -> Obj:
        body = orjson.dumps({"apiVersion": f"{group}/v1", "kind": kind, "spec": spec})
        answer = await self._transport.request("POST", f"/apis/{group}/v1/{kind.lower()}s", body=body)
        try:
            status = orjson.loads(answer.body)["status"]
        except (orjson.JSONDecodeError, KeyError, TypeError):
            status = None
        if not isinstance(status, dict):
            raise Unreachable(f"the answer is no {kind}")
        return status


def _attributes(deed: Deed) -> Obj:
    attributes = {
        "verb": deed.verb,
        "group": deed.resource.group,
        "version": deed.resource.version,
        "resource": deed.resource.plural,
        "subresource": deed.subresource,
        "namespace": deed.namespace,
        "name": deed.name,
    }
    return {"resourceAttributes": {key: value for key, value in attributes.items() if value}}


def _verdict(status: Obj) -> AccessVerdict:
    allowed = status.get("allowed") is True and status.get("denied") is not True
    return AccessVerdict(allowed, str(status.get("reason") or status.get("evaluationError") or ""))


def _user(value: Any) -> User:
    if not isinstance(value, dict) or not isinstance(value.get("username"), str) or not value["username"]:
        raise Unreachable("the answer is a TokenReview that names no user")
    extra = value.get("extra")
    return User(
        value["username"],
        str(value.get("uid") or ""),
        tuple(_strings(value.get("groups"))),
        {str(key): _strings(values) for key, values in extra.items()} if isinstance(extra, dict) else {},
    )


def _strings(value: Any) -> list[str]:
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []

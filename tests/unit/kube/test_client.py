"""The client: whatever answers, its callers get objects as they are meant to be, or a KubeError."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from typing import Any

import anyio
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairway.kube.client import Client
from fairway.kube.config import ClusterAccess
from fairway.kube.credentials import Credential, Fixed
from fairway.kube.errors import KubeError, Unreachable, from_response, from_status
from fairway.kube.http import Answer
from fairway.kube.resource import CONFIG_MAP, Obj
from fairway.kube.transport import Transport

pytestmark = pytest.mark.anyio

GOOD: Obj = {"metadata": {"name": "c", "namespace": "n", "uid": "u", "resourceVersion": "7"}, "data": {"a": "b"}}


class Answering(Transport):
    """Gives one answer, to requests and, line by line, to watches."""

    def __init__(self, answer: bytes) -> None:
        super().__init__(ClusterAccess("http://127.0.0.1:1", "test", Fixed(Credential())), user_agent="t")
        self._given = answer

    async def request(self, method: str, url: str, **_: Any) -> Answer:  # type: ignore[override]
        return Answer(200, (), self._given)

    async def lines(self, url: str, **_: Any) -> AsyncGenerator[bytes]:  # type: ignore[override]
        for line in self._given.splitlines():
            yield line


async def _watch(client: Client) -> list[Any]:
    return [event async for event in client.watch(CONFIG_MAP)]


async def _list(client: Client) -> list[Obj]:
    return list((await client.list_page(CONFIG_MAP)).items)


READS: dict[str, Callable[[Client], Awaitable[Any]]] = {
    "get": lambda c: c.get(CONFIG_MAP, "n", "c"),
    "get_metadata": lambda c: c.get_metadata(CONFIG_MAP, "n", "c"),
    "list_page": _list,
    "apply": lambda c: c.apply(CONFIG_MAP, GOOD, force=True),
    "create": lambda c: c.create(CONFIG_MAP, GOOD, namespace="n"),
    "replace": lambda c: c.replace(CONFIG_MAP, GOOD),
    "merge": lambda c: c.merge(CONFIG_MAP, "n", "c", {}),
    "delete": lambda c: c.delete(CONFIG_MAP, "n", "c"),
    "request_token": lambda c: c.request_token("n", "default"),
    "watch": _watch,
}

SCALARS = st.none() | st.booleans() | st.integers(-1, 2**40) | st.text(max_size=5)
METADATA = ("name", "namespace", "uid", "resourceVersion", "labels", "annotations", "ownerReferences", "continue")
STATUS = ("code", "reason", "message", "details", "causes", "retryAfterSeconds")
REST = ("metadata", "items", "status", "token", "expirationTimestamp", "type", "object", "kind", "deletionTimestamp")
NAMES = st.sampled_from((*METADATA, *STATUS, *REST))
JSON = st.recursive(SCALARS, lambda deeper: st.lists(deeper, max_size=3) | st.dictionaries(NAMES, deeper, max_size=4))


@pytest.mark.parametrize("verb", READS)
async def test_a_good_answer_is_understood(verb: str) -> None:
    answers = {
        "list_page": {"metadata": {"resourceVersion": "9"}, "items": [GOOD]},
        "watch": {"type": "ADDED", "object": GOOD},
        "request_token": {"status": {"token": "t", "expirationTimestamp": "2026-01-01T00:00:00Z"}},
        "delete": {"kind": "Status", "metadata": {}, "status": "Success"},
    }
    found = await READS[verb](Client(Answering(orjson.dumps(answers.get(verb, GOOD))), field_manager="t"))
    assert found is None if verb == "delete" else found


@pytest.mark.parametrize("verb", READS)
@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"<html>sign in</html>",
        b"null",
        b"[]",
        b"{}",
        b'{"ok": true}',
        b'{"metadata": null}',
        b'{"metadata": {}, "items": [{}]}',
        b'{"metadata": {}, "items": [{"metadata": null}]}',
        b'{"metadata": {}, "items": ["x"]}',
        b'{"metadata": {}, "items": {"x": 1}}',
        b'{"metadata": {"name": 5, "resourceVersion": 7}}',
        b'{"type": "ADDED", "object": {}}',
        b'{"type": "ADDED", "object": {"metadata": {"name": "c", "resourceVersion": 5}}}',
        b'{"type": "MODIFIED", "object": {"metadata": {"name": "c", "labels": []}}}',
        b'{"type": "BOOKMARK", "object": {}}',
        b'{"type": "ERROR", "object": null}',
        b'{"status": {"token": 5, "expirationTimestamp": null}}',
    ],
)
async def test_what_is_no_answer_of_an_api_server_is_none(verb: str, answer: bytes) -> None:
    client = Client(Answering(answer), field_manager="t")
    if verb == "watch" and answer == b"":
        assert await _watch(client) == []
        return
    with pytest.raises(Unreachable):
        await READS[verb](client)


@pytest.mark.parametrize("verb", READS)
def test_whatever_json_comes_only_kube_errors_are_raised(verb: str) -> None:
    @settings(max_examples=150, deadline=None)
    @given(JSON)
    def tried(body: Any) -> None:
        async def ask() -> None:
            with suppress(KubeError):
                await READS[verb](Client(Answering(orjson.dumps(body)), field_manager="t"))

        anyio.run(ask)

    tried()


@settings(max_examples=300, deadline=None)
@given(JSON, st.sampled_from([400, 404, 409, 429, 500, 503]))
def test_whatever_a_refusal_looks_like_it_is_an_error_with_a_message(body: Any, status: int) -> None:
    error = from_response(status, orjson.dumps(body), {})
    assert isinstance(error, KubeError)
    assert error.status == status
    assert str(error)
    assert not error.has_cause("Nonsense")
    if isinstance(body, dict):
        assert isinstance(from_status(body), KubeError)

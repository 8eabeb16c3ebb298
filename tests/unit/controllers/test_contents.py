import pytest

from fairway.controllers.contents import ContentReader
from fairway.controllers.mcpserver.needs import Need
from fairway.controllers.resources import USERS_OBJECTS
from fairway.kube.resource import SECRET
from fairway.runtime.store import Store, identity_only
from tests.unit.controllers.mcpserver.samples import secret

pytestmark = pytest.mark.anyio


class Cluster:
    """A store with metadata, and an API server that counts who asks for more."""

    def __init__(self):
        self.store = Store()
        self.objects = {}
        self.asked = []
        self.reader = ContentReader(watched=USERS_OBJECTS, fetch=self.fetch)
        for resource in USERS_OBJECTS.values():
            self.store.register(resource, scopes=(None,), trim=identity_only)

    def put(self, obj, version):
        obj["metadata"]["resourceVersion"] = version
        self.objects[obj["metadata"]["name"]] = obj
        self.store.observe(USERS_OBJECTS["Secret"], obj)

    async def fetch(self, resource, namespace, name):
        self.asked.append(name)
        return self.objects.get(name)

    async def read(self, *names):
        return await self.reader.read(
            "team", [Need("Secret", name, None, False, "test", stays=True) for name in names], self.store
        )


async def test_an_object_is_fetched_once_for_each_of_its_versions():
    cluster = Cluster()
    cluster.put(secret(token="a"), "1")
    before = await cluster.read("s")
    assert await cluster.read("s") == before
    assert cluster.asked == ["s"]
    cluster.put(secret(token="b"), "2")
    assert await cluster.read("s") != before
    assert cluster.asked == ["s", "s"]


async def test_what_nobody_needs_is_never_fetched_and_its_content_never_kept():
    cluster = Cluster()
    cluster.put(secret("other", token="hunter2"), "1")
    assert await cluster.read("s") == {("Secret", "s"): None}
    assert cluster.asked == []
    assert "data" not in cluster.store.get(SECRET.metadata, "team", "other")


async def test_values_are_known_by_digest_only():
    cluster = Cluster()
    cluster.put(secret(token="hunter2"), "1")
    content = (await cluster.read("s"))["Secret", "s"]
    assert content.uid == "x-1"
    assert set(content.digests) == {"token"}
    assert "hunter2" not in repr(content)


async def test_an_object_that_went_meanwhile_is_missing():
    cluster = Cluster()
    cluster.put(secret(token="a"), "1")
    cluster.objects.clear()
    assert await cluster.read("s") == {("Secret", "s"): None}

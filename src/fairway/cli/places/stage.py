"""What a rehearsal of a cluster's controllers needs of the cluster: its objects, and the operator's settings."""

import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from fairway.api import names
from fairway.cli.mistake import Mistake
from fairway.controllers import apiserver, install, operator
from fairway.controllers.contents import ContentReader
from fairway.controllers.mcpserver.needs import mentioned
from fairway.controllers.rehearsal import Change, Verdict, rehearse
from fairway.controllers.resources import CATALOGUE, MCP_SERVER
from fairway.controllers.settings import Settings
from fairway.kube.errors import Conflict, Forbidden, KubeError, NotFound
from fairway.kube.resource import CONFIG_MAP, DEPLOYMENT, POD, SECRET, Obj, ObjectRef, Resource
from fairway.runtime.configuration import Configuration, Values, flags_of
from fairway.runtime.setting import InvalidSetting

if TYPE_CHECKING:
    from fairway.cli.places.cluster import Cluster

_CATALOGUE = CATALOGUE.plus((SECRET, CONFIG_MAP))


@dataclass(frozen=True, slots=True)
class Stage:
    """Everything in the namespaces of some objects, read once with the rights of whoever asks."""

    cluster: "Cluster"
    live: Mapping[ObjectRef, Obj]
    settings: Settings
    absent: frozenset[Resource] = frozenset()
    """Kinds that this cluster does not have."""

    @classmethod
    async def around(cls, cluster: "Cluster", objects: Iterable[Obj]) -> "Stage":
        objects = list(objects)
        namespaces = sorted({obj["metadata"].get("namespace") or "" for obj in objects} - {""})
        live: dict[ObjectRef, Obj] = {}
        absent: set[Resource] = set()
        for namespace in namespaces:
            for resource in CATALOGUE.values():
                if resource in (POD, SECRET):
                    continue
                found = await _all(cluster, resource, namespace)
                if found is None:
                    absent.add(resource)
                live |= {_CATALOGUE.ref(obj): obj for obj in found or ()}
        stage = cls(cluster, live, await settings_of(cluster, live.values()), frozenset(absent))
        return replace(stage, live={**live, **await stage._secrets(objects), **await stage._seals()})

    async def _secrets(self, objects: Sequence[Obj]) -> dict[ObjectRef, Obj]:
        """Those that a server speaks of: their content decides whether its pods roll."""
        servers = [o for o in (*self.live.values(), *objects) if o["kind"] == MCP_SERVER.kind]
        wanted = {
            SECRET.ref(server["metadata"]["namespace"], name): server["metadata"]["name"]
            for server in servers
            for kind, name in mentioned(server.get("spec"))
            if kind == "Secret"
        }
        found = {}
        for ref, user in wanted.items():
            try:
                secret = await self.cluster.get(SECRET, ref.namespace, ref.name)
            except Forbidden:
                raise Mistake(
                    f"whether the pods of {user} would be replaced depends on Secret {ref.name}, which you may not "
                    f"read; ask for the right to get it"
                ) from None
            if secret is not None:
                found[ref] = secret
        return found

    async def _seals(self) -> dict[ObjectRef, Obj]:
        """The keys that proxies seal sessions with: only that they are there, and whose they are, is of interest."""
        found = {}
        for server in [o for o in self.live.values() if o["kind"] == MCP_SERVER.kind]:
            namespace, name = server["metadata"]["namespace"], names.ChildNames(server["metadata"]["name"]).seal
            try:
                seal = await self.cluster.client.get_metadata(SECRET, namespace, name)
            except Forbidden:  # what was made with it before has one
                owner = {"uid": server["metadata"]["uid"], "controller": True}
                seal = {"metadata": {"namespace": namespace, "name": name, "ownerReferences": [owner]}}
            if seal is not None:
                found[SECRET.ref(namespace, name)] = {
                    "apiVersion": "v1",
                    "kind": "Secret",
                    "metadata": seal["metadata"],
                }
        return found

    async def rehearse(self, objects: Sequence[Obj]) -> list[Verdict]:
        """As if these objects were there, in the form that the server would give them."""
        known = [obj for obj in objects if (obj["apiVersion"], obj["kind"]) in _CATALOGUE]
        world = {**self.live, **{_CATALOGUE.ref(obj): _numbered(obj) for obj in known}}

        async def fetch(resource: Resource, namespace: str, name: str) -> Obj | None:
            return world.get(resource.ref(namespace, name))

        verdicts = await rehearse(
            world.values(),
            settings=self.settings,
            contents=ContentReader(watched={"Secret": SECRET, "ConfigMap": CONFIG_MAP}, fetch=fetch),
            catalogue=_CATALOGUE,
            hash_annotation=names.ANNOTATION_APPLIED_HASH,
            absent=self.absent,
        )
        return [
            replace(verdict, changes=tuple([await self._asked(change) for change in verdict.changes]))
            for verdict in verdicts
        ]

    async def _asked(self, change: Change) -> Change:
        """With what the server would make of it, if we may ask: only it knows which fields would go."""
        if change.live is None or change.wanted is None:
            return change
        try:
            result = await self.cluster.client.apply(
                change.ref.resource, change.wanted, force=True, field_manager=names.FIELD_MANAGER, dry_run=True
            )
        except (Forbidden, Conflict):
            return change
        except KubeError as error:
            raise Mistake(f"the API server would refuse {change.ref}: {error.message}") from None
        return replace(change, result=result)


async def _all(cluster: "Cluster", resource: Resource, namespace: str) -> list[Obj] | None:
    """None for a kind that this cluster does not have."""
    try:
        return await cluster.list(resource, namespace)
    except NotFound:
        return None
    except Forbidden:
        raise Mistake(
            f"what would change depends on the {resource.plural} of namespace {namespace}, which you may not list; "
            "ask for the right to list them"
        ) from None


async def settings_of(cluster: "Cluster", live: Iterable[Obj]) -> Settings:
    """What the operator was told, by its own Deployment; else the image of whatever it made before."""
    api_server = apiserver.as_networks(await _where_pods_find_the_api_server(cluster))
    issuer = await apiserver.issuer_of(cluster.client)
    found: list[Obj] = []
    for namespace in (install.NAMESPACE, None):
        try:
            found = await cluster.list(DEPLOYMENT, namespace, labels={names.LABEL_NAME: install.NAME})
        except (Forbidden, NotFound):
            continue
        if found:
            break
    if found:
        told = operator.settings_of(await _values_of(cluster, found[0]))
        return replace(told, api_server=api_server, cluster_issuer=issuer)
    print("the operator's Deployment is not to be seen; its settings are guessed from what it made", file=sys.stderr)
    image = _image_in_use(live) or operator.DEFAULT_IMAGE
    return Settings(image=image, api_server=api_server, cluster_issuer=issuer)


async def _values_of(cluster: "Cluster", deployment: Obj) -> Values:
    config: Obj | None = None
    with suppress(Forbidden):
        config = await cluster.get(CONFIG_MAP, deployment["metadata"]["namespace"], install.NAME)
    told = ((config or {}).get("data") or {}).get(operator.FILE.name, "")
    return _values(deployment["spec"]["template"]["spec"]["containers"][0], str(told))


def _values(container: Obj, told: str) -> Values:
    """Flags, variables and file, put together as the operator itself does."""
    given, _ = operator.parser().parse_known_args([a for a in container.get("args") or () if a != "operator"])
    environment = {v["name"]: v["value"] for v in container.get("env") or () if "value" in v}
    with TemporaryDirectory(prefix="fairway-") as directory:
        file = Path(directory, operator.FILE.name)
        file.write_text(told, "utf-8")
        try:
            return Configuration(
                operator.SETTINGS,
                flags=flags_of(given, operator.SETTINGS),
                environ=environment,
                prefix=operator.PREFIX,
                file=file,
                file_must_exist=False,
            ).load()
        except InvalidSetting as error:
            raise Mistake(f"the operator's settings cannot be read: {error}") from None


async def _where_pods_find_the_api_server(cluster: "Cluster") -> list[str]:
    try:
        return await apiserver.of_service(cluster.client)
    except KubeError:
        return []


def _image_in_use(live: Iterable[Obj]) -> str | None:
    for obj in live:
        if obj["kind"] == DEPLOYMENT.kind:
            for container in obj["spec"]["template"]["spec"]["containers"]:
                if container["name"] == names.CONTAINER_PROXY or (container.get("args") or [""])[0] == "tools":
                    return str(container["image"])
    return None


def _numbered(obj: Obj) -> Obj:
    """A rehearsed object has been stored by nobody."""
    metadata: dict[str, Any] = {"uid": "not-yet", "generation": 1, **obj["metadata"]}
    return {**obj, "metadata": {**metadata, "resourceVersion": metadata.get("resourceVersion") or "1"}}

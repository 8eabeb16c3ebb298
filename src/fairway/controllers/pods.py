"""How an operator reaches the pods of a cluster: it dials them, or asks the API server to, and nudges their kubelet."""

from collections.abc import Mapping
from typing import Any, Literal

from fairway.api import names, proxystatus
from fairway.controllers.mcpserver.ask import Unreachable
from fairway.controllers.mcpserver.observation import Target
from fairway.kube.client import Client
from fairway.kube.errors import KubeError, NotFound
from fairway.kube.resource import POD, Obj, Resource

Reach = Literal["direct", "apiserver"]


class ClusterPods:
    """The pods of one cluster. The client is given once the manager has made it."""

    def __init__(self) -> None:
        self.client: Client | None = None

    async def status_through_api_server(self, target: Target) -> tuple[int, bytes]:
        port = int(target.address.rpartition(":")[2])
        try:
            answer = await self._client().fetch_from_pod(
                target.namespace, target.pod, port, proxystatus.PATH, timeout=5.0
            )
        except KubeError as error:
            raise Unreachable(str(error)) from None
        return answer.status, answer.body

    async def nudge(self, pod: Mapping[str, Any], wanted: str) -> None:
        """An annotation on a running pod makes its kubelet look at the pod's ConfigMaps at once."""
        metadata = pod["metadata"]
        annotations = {names.ANNOTATION_RUNCONFIG_HASH: wanted}
        patch = {"metadata": {"uid": metadata["uid"], "annotations": annotations}}
        try:
            await self._client().merge(POD, metadata["namespace"], metadata["name"], patch)
        except NotFound:
            return  # it went meanwhile; its successor mounts the newest

    async def whole_object(self, resource: Resource, namespace: str, name: str) -> Obj | None:
        """A Secret or ConfigMap of which only the metadata is watched."""
        return await self._client().get(resource, namespace, name)

    def _client(self) -> Client:
        assert self.client is not None, "the manager has not been made yet"
        return self.client

"""What there is of one MCPServer, as far as its status is about it. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fairway.api.proxystatus import Endpoint, EndpointState, Route
from fairway.controllers.mcpserver import pods
from fairway.controllers.mcpserver.image import Image
from fairway.controllers.mcpserver.observation import Observation

Obj = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Live:
    """What there is of one MCPServer after its objects were applied."""

    server_deployment: Obj | None = None
    proxy_deployment: Obj | None = None
    service: Obj | None = None
    ingress: Obj | None = None
    http_route: Obj | None = None
    publishes: bool = True
    """Whether this place publishes anything beyond itself."""
    strict_ingress: bool = True
    """Whether an Ingress counts only once its controller has published it, where its owner does not say."""
    server_pods: tuple[Obj, ...] = ()
    proxy_pods: tuple[Obj, ...] = ()
    observations: tuple[Observation, ...] = ()
    taken: tuple[str, ...] = ()
    """kind/name of objects that exist and are somebody else's."""
    rejected: tuple[tuple[str, str], ...] = ()
    """kind/name of objects that the API server refused, and what it said."""
    image: Image | None = None
    """How the server's image came about."""
    breaches: tuple[str, ...] = ()
    """Where the server's pods break the restricted Pod Security standard."""
    ungranted: tuple[str, ...] = ()
    """Entries of the permission profile that are not granted."""
    handing_over: str = ""
    """What still serves clients until something else does; empty if nothing has to."""
    before: Obj = field(default_factory=dict)
    """The status as it stands."""

    @property
    def answer(self) -> Route | None:
        """What the proxy that is furthest along says of the server."""
        routes = [o for o in self.observations if o.route is not None]
        best = max(routes, key=lambda o: (o.hash_matches, o.settled, o.target.uid), default=None)
        return best.route if best else None

    @property
    def endpoints(self) -> list[Endpoint]:
        """What is known of the pods that are there; an endpoint without a uid, or of a pod unlike ours, is not ours."""
        if self.server_deployment is None and not self.server_pods:
            return [e for o in self.observations if o.route is not None for e in o.route.endpoints]
        # a proxy asks pods that are still starting, too: what they fail to answer is no news
        starting = {EndpointState.UNREACHABLE, EndpointState.PENDING}
        found = {pod["metadata"]["uid"]: pods.is_ready(pod) for pod in self.server_pods if not pods.is_gone(pod)}
        return [
            e
            for o in self.observations
            if o.route is not None
            for e in o.route.endpoints
            if not e.uid or found.get(e.uid) or (e.uid in found and e.state not in starting)
        ]

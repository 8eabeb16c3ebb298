"""Asks one pod: a proxy for its status over its admin port, or a server without proxy by a handshake."""

from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit

from fairway.api import proxystatus
from fairway.api.proxystatus import Endpoint, Route
from fairway.api.toolview import ToolView
from fairway.controllers.mcpserver.observation import Observation, Target
from fairway.mcp.http import HttpClient, HttpError, Limits
from fairway.mcp.offer import named, summarise
from fairway.mcp.probe import Way, introduced, shake

FetchStatus = Callable[[Target], Awaitable[tuple[int, bytes]]]
"""GET /v1/status of a proxy pod; raises HttpError or KubeError subclasses with a message for people."""
_LIMITS = Limits(connect=2.0, answer=5.0, body=8 << 20)


class Unreachable(Exception):
    """There is no answer to be had; the message says who was asked."""


class Asker:
    """An `Ask` that dials pods itself, or through `fetch_status` where their network is out of reach."""

    def __init__(self, *, fetch_status: FetchStatus | None = None) -> None:
        self._http = HttpClient(limits=_LIMITS)
        self._fetch_status = fetch_status or self._dial

    async def __call__(self, target: Target) -> Observation:
        if target.via == "handshake":
            return await self._shake_hands(target)
        try:
            status, body = await self._fetch_status(target)
        except (HttpError, Unreachable) as error:
            return Observation(target, error=f"proxy {target.pod} cannot be asked: {error}")
        if status != 200:
            return Observation(target, error=f"proxy {target.pod} answered {status} to GET {proxystatus.PATH}")
        return interpreted(target, body)

    async def aclose(self) -> None:
        await self._http.aclose()

    async def _dial(self, target: Target) -> tuple[int, bytes]:
        # not kept alive: the next question is minutes away, and pods come and go
        headers = {"Connection": "close"}
        response = await self._http.request("GET", f"http://{target.address}{proxystatus.PATH}", headers=headers)
        return response.status, response.body

    async def _shake_hands(self, target: Target) -> Observation:
        asked = urlsplit(target.url)
        # by the name that clients use: a server that refuses it is of no use to them
        headers = {"Host": asked.netloc}
        way = Way(address=target.address, path=asked.path, legacy=target.legacy, headers=headers, proxied=False)
        outcome = await shake(way)
        endpoint = Endpoint(
            address=target.address, pod=target.pod, uid=target.uid, state=outcome.state, message=outcome.message
        )
        good = outcome.session is not None
        route = Route(
            name=f"{target.namespace}/{target.server}",
            hash="",
            ready=good,
            endpoints=(endpoint,),
            server=introduced(outcome.session) if outcome.session else None,
            tools=summarise(outcome.tools, outcome.tools_error, ToolView()) if good else None,
            resources=named(outcome.resources),
            prompts=named(outcome.prompts),
        )
        return Observation(target, route=route)


def interpreted(target: Target, body: bytes) -> Observation:
    """A proxy's answer, as far as it is about this server."""
    try:
        status = proxystatus.parse(body)
    except ValueError as error:
        return Observation(target, error=f"proxy {target.pod} answered something that is no status: {error}")
    route = status.route(f"{target.namespace}/{target.server}")
    return Observation(target, route=route, config=status.config)

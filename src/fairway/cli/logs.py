"""`fairway logs`: what the pods of a server say."""

import asyncio
from typing import Annotated, Any

import typer

from fairway.cli import typed
from fairway.cli.mistake import Mistake
from fairway.cli.where import Where, somewhere

_LOOK_EVERY = 1.0


def main(arguments: list[str]) -> int:
    return typed.run(logs, arguments, verb="logs")


@somewhere
async def logs(
    where: Where,
    name: Annotated[str, typer.Argument(metavar="NAME", help="A server, or KIND/NAME.")],
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on, across restarts and rollouts.")] = False,
    proxy: Annotated[bool, typer.Option("--proxy", help="What stands in front, instead of the server.")] = False,
    previous: Annotated[bool, typer.Option("--previous", "-p", help="The run before the last restart.")] = False,
    tail: Annotated[int, typer.Option(min=0, help="Lines to begin with, of each pod.")] = 200,
    pod: Annotated[str, typer.Option(metavar="NAME", help="Only this pod.")] = "",
    container: Annotated[str, typer.Option("--container", "-c", metavar="NAME", help="Only this container.")] = "",
) -> int:
    """Prints the log of a server, of all of its pods: fairway logs hello -f

    Exit codes: 0 there was a pod, 1 there was none, 2 could not ask.
    """
    from fairway.cli.found import the_object

    async with where.place() as place:
        kind, obj = await the_object(place, name)
        reader = _Reader(place, proxy=proxy, previous=previous, tail=tail, pod=pod, container=container)
        return await (reader.follow(kind, obj) if follow else reader.once(kind, obj))


class _Reader:
    """Lines of several containers, each with the name of its pod where there is more than one."""

    def __init__(self, place: Any, *, proxy: bool, previous: bool, tail: int, pod: str, container: str) -> None:
        self._place = place
        self._proxy = proxy
        self._previous = previous
        self._tail = tail
        self._pod = pod
        self._container = container
        self._named = False

    async def once(self, kind: Any, obj: Any) -> int:
        from fairway.kube.errors import BadRequest

        sources = await self._sources(kind, obj)
        self._named = len(sources) > 1
        for source in sources:
            try:
                async for line in self._place.log(source, previous=self._previous, tail=self._tail):
                    self._print(source, line)
            except BadRequest as error:  # it has not started, or there is no run before
                typer.echo(f"fairway logs: {source.pod}: {error.message}", err=True)
        if not sources:
            what = "no proxy" if self._proxy else "no pod"
            typer.echo(f"fairway logs: {what} of {obj['metadata']['name']} is there; see fairway describe", err=True)
        return 0 if sources else 1

    async def follow(self, kind: Any, obj: Any) -> int:
        """Until interrupted: what restarts or is replaced is followed on."""
        running: dict[Any, asyncio.Task[None]] = {}
        begun: set[Any] = set()
        try:
            while True:
                for source in await self._sources(kind, obj):
                    if source not in running:
                        again = source in begun
                        begun.add(source)
                        running[source] = asyncio.create_task(self._stream(source, again=again))
                self._named = self._named or len(running) > 1
                await asyncio.sleep(_LOOK_EVERY)
                for source in [s for s, task in running.items() if task.done()]:
                    running.pop(source).result()
        finally:
            for task in running.values():
                task.cancel()
            await asyncio.gather(*running.values(), return_exceptions=True)

    async def _stream(self, source: Any, *, again: bool) -> None:
        from fairway.kube.errors import KubeError

        try:
            # a container that came back begins a log of its own; one that did not has said everything already
            tail = 0 if again else self._tail
            async for line in self._place.log(source, follow=True, tail=tail):
                self._print(source, line)
        except KubeError as error:
            if error.status not in (400, 404):  # not started yet, or gone: the next look decides
                raise

    async def _sources(self, kind: Any, obj: Any) -> list[Any]:
        from fairway.api import names
        from fairway.cli.found import component_of, containers_of, hint, pods_of

        pods = await pods_of(self._place, kind, obj)
        if self._pod:
            chosen = [pod for pod in pods if pod["metadata"]["name"] == self._pod]
            if not chosen:
                raise Mistake(f"no pod {self._pod}{hint(self._pod, [p['metadata']['name'] for p in pods])}")
        else:
            chosen = [p for p in pods if (component_of(p) == names.COMPONENT_PROXY) == self._proxy]
        sources = [source for pod in chosen for source in containers_of(pod)]
        if self._container:
            known = {source.container for source in sources}
            sources = [source for source in sources if source.container == self._container]
            if known and not sources:
                raise Mistake(f"no container {self._container}{hint(self._container, known)}")
        return sources

    def _print(self, source: Any, line: str) -> None:
        print(f"[{source.pod}] {line}" if self._named else line, flush=True)

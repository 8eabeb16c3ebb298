"""Where a verb looks: a running `fairway up` of this folder, or the cluster of a kubeconfig."""

import asyncio
import functools
import inspect
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairway.cli.mistake import Mistake

if TYPE_CHECKING:
    from fairway.cli.places import Place

STATE_DIR = Path(".fairway")


@dataclass(frozen=True, slots=True)
class Where:
    """What the user said of it."""

    namespace: str = ""
    local: bool = False
    context: str = ""
    kubeconfig: str = ""
    state_dir: Path = STATE_DIR

    @property
    def means_local(self) -> bool:
        """Whether it is the `fairway up` of this folder."""
        from fairway.local import control

        return self.local or (not (self.context or self.kubeconfig) and control.is_running(self.state_dir))

    @asynccontextmanager
    async def place(self) -> AsyncIterator["Place"]:
        """The place, for as long as it is needed. Raises Mistake if there is none."""
        to_cluster = bool(self.context or self.kubeconfig)
        if self.local and to_cluster:
            raise Mistake("--local is this machine; --context and --kubeconfig are a cluster: leave one of them out")
        if self.means_local:
            from fairway.cli.places.laptop import Laptop

            yield Laptop(self.state_dir, self.namespace)
            return
        from fairway.cli.places.cluster import connected
        from fairway.kube.config import AccessError, load_access

        try:
            access = load_access(kubeconfig=self.kubeconfig or None, context=self.context or None)
        except AccessError as error:
            nothing_here = "" if to_cluster else f"no `fairway up` runs in {Path.cwd()}, and "
            raise Mistake(f"{nothing_here}{error}") from None
        async with connected(access, self.namespace) as place:
            yield place


def _where(
    namespace: Annotated[
        str, typer.Option("--namespace", "-n", metavar="NAME", help="Default: the context's, or default.")
    ] = "",
    local: Annotated[bool, typer.Option("--local", help="The `fairway up` of this folder; chosen if it runs.")] = False,
    context: Annotated[str, typer.Option(metavar="NAME", help="Context of the kubeconfig.")] = "",
    kubeconfig: Annotated[str, typer.Option(metavar="FILE", help="Default: what kubectl would use.")] = "",
    state_dir: Annotated[Path, typer.Option(metavar="DIR", help="State directory of `fairway up`.")] = STATE_DIR,
) -> Where:
    return Where(namespace, local, context, kubeconfig, state_dir)


def somewhere(command: Callable[..., Awaitable[int]]) -> Callable[..., int]:
    """Adds the options that say where to an async verb, which gets them as its one argument `where`."""
    own = inspect.signature(command, eval_str=True).parameters.values()
    options = inspect.signature(_where).parameters

    @functools.wraps(command)
    def run(**given: Any) -> int:
        where = _where(**{name: given.pop(name) for name in options})
        return asyncio.run(_explained(command(where=where, **given)))

    parameters = [*(p.replace(kind=p.KEYWORD_ONLY) for p in own if p.name != "where"), *options.values()]
    run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in parameters]
    )
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    del run.__wrapped__
    return run


async def _explained(work: Awaitable[int]) -> int:
    """What a cluster or a running `up` says no with, as the user's to deal with."""
    from fairway.api.manifest import InvalidManifest
    from fairway.kube.errors import KubeError
    from fairway.local.control import NotRunning, Refused

    try:
        return await work
    except KubeError as error:
        raise Mistake(in_words(error)) from None
    except (NotRunning, Refused) as error:
        raise Mistake(str(error)) from None
    except InvalidManifest as invalid:
        raise Mistake(str(invalid), bare=True) from None


def in_words(error: Exception) -> str:
    """A refusal of the API server with what to do about it, where that is known."""
    from fairway.kube.errors import Conflict, Forbidden, NotFound, Unauthorized, Unreachable

    said = getattr(error, "message", str(error))
    match error:
        case Unauthorized():
            return f"the cluster does not accept these credentials ({said}); log in again, or choose another --context"
        case Forbidden():
            return f"{said}; ask for that right, or use an account that has it"
        case NotFound() if "could not find the requested resource" in said:
            return "the cluster does not have these kinds; `fairway install` puts them there"
        case Unreachable():
            return f"{said}; is the cluster up, and is this the right --context?"
        case Conflict():
            return f"{said}; --force-conflicts takes the fields over"
    return str(error)


def as_json(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)

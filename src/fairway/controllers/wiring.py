"""The controllers put together: the one place that lists them, for the operator and for local mode alike."""

from collections.abc import Sequence
from dataclasses import dataclass

from fairway.controllers.contents import ContentReader
from fairway.controllers.mcpserver import reconcile as mcpserver
from fairway.controllers.mcpserver.creation import CreationErrors
from fairway.controllers.mcpserver.observer import Ask, Observer, Pace
from fairway.controllers.mcpserver.reconcile import Nudge, utc_now
from fairway.controllers.mcptoolconfig import reconcile as mcptoolconfig
from fairway.controllers.settings import Settings
from fairway.runtime.controller import Controller
from fairway.runtime.extension import Extension


@dataclass(frozen=True, slots=True)
class Controllers:
    """All controllers, and the observer that must be stopped after them."""

    all: tuple[Controller, ...]
    observer: Observer
    creation_errors: CreationErrors


def controllers(
    *,
    settings: Settings,
    ask: Ask,
    nudge: Nudge,
    contents: ContentReader,
    pace: Pace | None = None,
    selector: str = "",
    extensions: Sequence[Extension] = (),
) -> Controllers:
    """`ask` and `nudge` reach the pods, `contents` users' Secrets; no more differs between a cluster and a laptop."""
    servers: list[Controller] = []
    observer = Observer(ask=ask, tell=lambda namespace, name: servers[0].enqueue(namespace, name), pace=pace)
    errors = CreationErrors()
    reconciler = mcpserver.Reconciler(
        settings=settings, observer=observer, contents=contents, nudge=nudge, errors=errors
    )
    servers.append(mcpserver.controller(reconciler, contents))
    configs = mcptoolconfig.controller(mcptoolconfig.Reconciler(now=utc_now))
    for controller in (*servers, configs):
        controller.extend(selector=selector, extensions=extensions)
    return Controllers((*servers, configs), observer, errors)

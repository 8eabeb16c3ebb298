"""One reconcile of an MCPServer, and what makes one necessary."""

import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

from fairway.api import names, runconfig
from fairway.api.conditions import Phase, Reason
from fairway.api.mcpserver import ProxyMode
from fairway.controllers.contents import ContentReader
from fairway.controllers.mcpserver import handover, observation, package, publishing, runtimes, shape, turns
from fairway.controllers.mcpserver.creation import CreationErrors
from fairway.controllers.mcpserver.desired import desired, kept, made_once
from fairway.controllers.mcpserver.handover import Handover, Standing
from fairway.controllers.mcpserver.image import Unresolvable, server_image
from fairway.controllers.mcpserver.inputs import Inputs, Missing, gather, unmet
from fairway.controllers.mcpserver.live import Live
from fairway.controllers.mcpserver.needs import Kind, mentioned, names_from
from fairway.controllers.mcpserver.observation import Observation, Target
from fairway.controllers.mcpserver.observer import Observer
from fairway.controllers.mcpserver.permissions import egress
from fairway.controllers.mcpserver.pods import is_running, looked_at
from fairway.controllers.mcpserver.podsecurity import violations
from fairway.controllers.mcpserver.proxy import route
from fairway.controllers.mcpserver.rules import needs_of as needs_of_rules
from fairway.controllers.mcpserver.rules import rules_of
from fairway.controllers.mcpserver.status import is_news, status_of, status_of_missing
from fairway.controllers.mcpserver.template import TemplateRefused
from fairway.controllers.mcpserver.turns import Turns
from fairway.controllers.mcpserver.workload import needs_of, pod_of, running
from fairway.controllers.mcptoolconfig.reference import referenced_tool_config
from fairway.controllers.resources import CHILDREN, MCP_SERVER, MCP_TOOL_CONFIG, OPTIONAL
from fairway.controllers.settings import Settings
from fairway.kube.resource import (
    CONFIG_MAP,
    DEPLOYMENT,
    HTTP_ROUTE,
    INGRESS,
    POD,
    SERVICE,
    STATEFUL_SET,
    Obj,
    Resource,
)
from fairway.runtime.child import being_deleted, controller_uid
from fairway.runtime.controller import Controller, MapFunction
from fairway.runtime.outcome import Notice, Outcome, Requeue
from fairway.runtime.store import StoreView, identity_only
from fairway.runtime.world import World

Nudge = Callable[[Mapping[str, Any], str], Awaitable[None]]
"""Makes a proxy pod look at its RunConfig now; the text is the hash that it should find."""
Now = Callable[[], str]

BY_SERVER = "server"
BY_TOOL_CONFIG = "tool-config"
BY_CONTENT = "content"


def utc_now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Reconciler:
    """gather -> desired -> apply -> prune -> status."""

    def __init__(
        self,
        *,
        settings: Settings,
        observer: Observer,
        contents: ContentReader,
        nudge: Nudge,
        errors: CreationErrors,
        now: Now = utc_now,
    ) -> None:
        self._errors = errors
        self._settings = settings
        self._observer = observer
        self._contents = contents
        self._nudge = nudge
        self._now = now
        self._held = HeldBack(clock=time.monotonic)
        self._led_elsewhere = LedElsewhere(clock=time.monotonic)
        self._turns = Turns(at_once=settings.proxy_rollouts, clock=time.monotonic)

    @property
    def runtimes(self) -> str:
        """namespace/name of the catalogue of named runtimes."""
        return self._settings.runtimes

    async def __call__(self, server: Obj, world: World) -> Outcome:
        gathered = await self._gather(server, world.store)
        if isinstance(gathered, Missing):
            return self._undecided(server, gathered, world)
        made = await world.make(owner=server, objects=made_once(gathered))
        change = self._handover(server, gathered, world.store)
        applied = await world.apply(owner=server, objects=desired(gathered, self._settings, change))
        self._errors.count(applied, world.store)
        await world.prune(owner=server, keep=applied.refs | kept(gathered) | change.keep)
        if not _is_still_there(server, world.store):
            return Outcome(reason="Deleted")
        live = self._look(
            server,
            world.store,
            _whom(gathered, self._settings, server, world.store),
            sidecars=shape.sidecar(gathered),
            workload=shape.workload(gathered),
        )
        live = replace(
            live,
            publishes=self._settings.publishes,
            strict_ingress=self._settings.ingress_readiness != "permissive",
            image=server_image(gathered.server.spec, self._settings),
            handing_over=change.message,
            breaches=tuple(violations(pod_of(gathered, self._settings)[1])) if shape.workload(gathered) else (),
            ungranted=egress(gathered, self._settings).complaints,
            taken=tuple(str(ref) for ref in (*made.name_taken, *applied.name_taken)),
            rejected=tuple((str(r.ref), r.message) for r in (*made.rejected, *applied.rejected)),
        )
        await self._nudge_stale_proxies(gathered, live)
        outcome = self._told_in_time(server, status_of(gathered, live, now=self._now()))
        if outcome.requeue is None and self._led_elsewhere.lately(server["metadata"]["uid"]):
            return replace(outcome, requeue=Requeue(handover.SETTLES, "Settling"))
        if outcome.requeue is None and change.holds_proxy:
            return replace(outcome, requeue=Requeue(turns.WAIT, "UpgradeWaitsItsTurn"))
        return outcome

    def _handover(self, server: Obj, inputs: Inputs, store: StoreView) -> Handover:
        """What is not written yet, since clients still depend on what is there."""
        namespace, uid = server["metadata"]["namespace"], server["metadata"]["uid"]
        child = names.ChildNames(server["metadata"]["name"])
        found = {kind: _own(server, store.get(kind, namespace, child.workload)) for kind in (DEPLOYMENT, STATEFUL_SET)}
        server_pods, proxy_pods = _pods_of(server, store)
        standing = Standing(
            service=_own(server, store.get(SERVICE, namespace, child.service)),
            proxy=_own(server, store.get(DEPLOYMENT, namespace, child.proxy)),
            workloads={kind: made for kind, made in found.items() if made is not None},
            server_pods=server_pods,
            proxy_pods=proxy_pods,
            came_from=self._led_elsewhere.lately(uid),
        )
        if standing.mode not in (None, shape.mode(inputs)):
            whom = _whom(inputs, self._settings, server, store)
            targets = whom(server_pods, server_pods if shape.sidecar(inputs) else proxy_pods)
            standing = replace(standing, observations=self._observer.look(namespace, child.server, targets))
        change = handover.decide(inputs, standing)
        if standing.mode in change.open_to and change.front is None:
            self._led_elsewhere.now(uid, standing.mode)
        if shape.own_proxy(inputs) and not self._turns.may_roll(uid, standing.proxy, self._settings.image):
            held = change.keep | {DEPLOYMENT.ref(namespace, child.proxy)}
            return replace(change, holds_proxy=True, keep=held)
        return change

    async def _gather(self, server: Obj, store: StoreView) -> Inputs | Missing:
        gathered = gather(server, _tool_config(server, store), processes=self._settings.processes)
        if isinstance(gathered, Inputs) and gathered.server.spec.runtime is not None:
            gathered = await self._with_runtime(gathered, store)
        if isinstance(gathered, Missing):
            return gathered
        try:
            needed = needs_of(gathered, self._settings)
        except (Unresolvable, TemplateRefused) as error:
            return Missing(Reason.INVALID_SPEC, str(error))
        if wrong := publishing.problem(gathered, self._settings):
            return Missing(Reason.INVALID_SPEC, wrong)
        namespace = server["metadata"]["namespace"]
        ruled_by = needs_of_rules(gathered.server.spec)
        contents = await self._contents.read(namespace, (*needed, *ruled_by), store)
        known = replace(
            gathered,
            needs=needed,
            contents=contents,
            served=frozenset(kind for kind in OPTIONAL if store.synced(kind)),
            unmet=unmet(needed, contents, namespace=namespace),
            running=running(self._workload(server, gathered, store)),
        )
        if (unfit := _unfit(known, self._settings)) is not None:
            return unfit
        if not shape.has_proxy(known):
            return known
        rules, unruled = rules_of(known, self._settings)
        return replace(known, rules=rules, unruled=unruled)

    def _workload(self, server: Obj, inputs: Inputs, store: StoreView) -> Obj | None:
        kind, namespace = shape.workload(inputs), server["metadata"]["namespace"]
        child = names.ChildNames(server["metadata"]["name"])
        return None if kind is None else _own(server, store.get(kind, namespace, child.workload))

    async def _with_runtime(self, inputs: Inputs, store: StoreView) -> Inputs | Missing:
        catalogue = self._settings.runtimes
        needed = runtimes.need(catalogue)
        contents = await self._contents.read(runtimes.namespace_of(catalogue), [needed], store)
        return runtimes.resolved(inputs, contents[needed.kind, needed.name], catalogue=catalogue)

    async def leaving(self, server: Obj, _: World) -> Outcome:
        """What is told of a server that is being deleted and waits for its objects to go first."""
        said = {"phase": Phase.TERMINATING.value, "message": "it is being deleted, and waits for its objects to go"}
        return Outcome(status={**(server.get("status") or {}), **said}, reason="Terminating")

    async def refuse(self, server: Obj, world: World, problems: Sequence[str]) -> Outcome:
        """What becomes of a server that validators found something wrong with."""
        return self._undecided(server, Missing(Reason.INVALID_SPEC, "; ".join(problems)), world)

    def _undecided(self, server: Obj, missing: Missing, world: World) -> Outcome:
        live = self._look(server, world.store, targets_of_running(server, world.store))
        return self._told_in_time(server, status_of_missing(server, missing, live=live, now=self._now()))

    def _told_in_time(self, server: Obj, status: dict[str, Any]) -> Outcome:
        wait = self._held.wait(server["metadata"]["uid"], server.get("status") or {}, status)
        return Outcome(requeue=Requeue(wait, "HeldBack"), reason="HeldBack") if wait else _told(server, status)

    def forget_if_gone(self, server: Obj, store: StoreView) -> Iterable[tuple[str, str]]:
        """Listens to our own kind: the pods of a server that is gone are nobody's concern. Wakes nobody."""
        namespace, name = server["metadata"]["namespace"], server["metadata"]["name"]
        if store.get(MCP_SERVER, namespace, name) is None:
            self._observer.forget(namespace, name)
            self._turns.forget(server["metadata"]["uid"])
        return ()

    def _look(
        self,
        server: Obj,
        store: StoreView,
        whom: "Whom",
        *,
        sidecars: bool | None = None,
        workload: Resource | None = None,
    ) -> Live:
        """`sidecars` and `workload` say what is to be there; None, that nobody knows and what is there counts."""
        namespace, name = server["metadata"]["namespace"], server["metadata"]["name"]
        server_pods, proxy_pods = _pods_of(server, store)
        if sidecars or (sidecars is None and not proxy_pods):
            proxy_pods = tuple(pod for pod in server_pods if observation.has_proxy(pod))
        child = names.ChildNames(name)
        kinds = [workload] if workload else [DEPLOYMENT, STATEFUL_SET]
        makers = [maker for kind in kinds if (maker := _own(server, store.get(kind, namespace, child.workload)))]
        return Live(
            server_deployment=makers[0] if makers else None,
            proxy_deployment=_own(server, store.get(DEPLOYMENT, namespace, child.proxy)),
            service=_own(server, store.get(SERVICE, namespace, child.service)),
            ingress=_own(server, store.get(INGRESS, namespace, child.service)),
            http_route=_own(server, store.get(HTTP_ROUTE, namespace, child.service)),
            server_pods=server_pods,
            proxy_pods=proxy_pods,
            observations=self._observer.look(namespace, name, whom(server_pods, proxy_pods)),
            before=server.get("status") or {},
        )

    async def _nudge_stale_proxies(self, inputs: Inputs, live: Live) -> None:
        if not shape.has_proxy(inputs) or inputs.rules is None:
            return
        wanted = runconfig.route_hash(route(inputs))
        stale = {o.target.uid for o in live.observations if _runs_something_else(o)}
        for pod in live.proxy_pods:
            told = (pod["metadata"].get("annotations") or {}).get(names.ANNOTATION_RUNCONFIG_HASH)
            if pod["metadata"]["uid"] in stale and told != wanted:
                await self._nudge(pod, wanted)


class HeldBack:
    """Lets changes of status that are no news wait a moment for the next ones, so that they cost one write together."""

    def __init__(self, *, clock: Callable[[], float], seconds: float = 2.0) -> None:
        self._clock = clock
        self._seconds = seconds
        self._due: dict[str, float] = {}

    def wait(self, uid: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> float:
        """How long to wait before `after` is written; 0 to write now."""
        now = self._clock()
        if before == after or is_news(before, after):
            self._due.pop(uid, None)
            return 0.0
        due = self._due.setdefault(uid, now + self._seconds)
        if due <= now:
            del self._due[uid]
            return 0.0
        if len(self._due) > 1000:  # of objects that went while something of theirs was held back
            self._due = {other: at for other, at in self._due.items() if at > now - 60}
        return due - now


class LedElsewhere:
    """Remembers for a moment how clients were served before their Service led them elsewhere.

    Who forgets it, as a restart does, closes a policy a few seconds early.
    """

    def __init__(self, *, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._since: dict[str, tuple[float, ProxyMode]] = {}

    def now(self, uid: str, was: ProxyMode | None) -> None:
        if was is not None:
            self._since[uid] = self._clock(), was

    def lately(self, uid: str) -> ProxyMode | None:
        since, was = self._since.get(uid, (0.0, None))
        if was is not None and self._clock() - since >= handover.SETTLES:
            del self._since[uid]
            return None
        return was


Whom = Callable[[tuple[Obj, ...], tuple[Obj, ...]], Sequence[Target]]
"""Whom to ask, given the server's own pods and its proxies."""


def _pods_of(server: Obj, store: StoreView) -> tuple[tuple[Obj, ...], tuple[Obj, ...]]:
    """The pods of the server itself, and those of its proxies."""
    namespace, name = server["metadata"]["namespace"], server["metadata"]["name"]
    by_component: dict[str, list[Obj]] = {names.COMPONENT_SERVER: [], names.COMPONENT_PROXY: []}
    for pod in store.by_index(POD, BY_SERVER, f"{namespace}/{name}"):
        component = (pod["metadata"].get("labels") or {}).get(names.LABEL_COMPONENT, "")
        by_component.get(component, []).append(pod)
    return tuple(by_component[names.COMPONENT_SERVER]), tuple(by_component[names.COMPONENT_PROXY])


def _own(server: Obj, child: Obj | None) -> Obj | None:
    if child is None or being_deleted(child) or controller_uid(child) != server["metadata"]["uid"]:
        return None
    return child


def _unfit(inputs: Inputs, settings: Settings) -> Missing | None:
    """What shows only in what the server refers to: source that is no Python, variables nobody sets, a shut way."""
    tools = inputs.server.spec.inline_tools
    if tools is not None and tools.secret_key_ref is not None:
        secret = tools.secret_key_ref
        content = inputs.contents.get(("Secret", secret.name))
        problem = content.not_python.get(secret.key, "") if content is not None else ""
        if problem:
            where = f"spec.inlineTools.secretKeyRef: key {secret.key} of Secret {secret.name}"
            return Missing(Reason.INLINE_TOOLS_INVALID, f"{where}: {problem}")
    if inputs.unmet is None and (absent := runtimes.unset(inputs, names_from(inputs.needs, inputs.contents))):
        return absent
    refused = package.problem(inputs, settings)
    return Missing(Reason.INVALID_SPEC, refused) if refused else None


def _is_still_there(server: Obj, store: StoreView) -> bool:
    now = store.get(MCP_SERVER, server["metadata"]["namespace"], server["metadata"]["name"])
    return now is not None and now["metadata"]["uid"] == server["metadata"]["uid"]


def _runs_something_else(seen: Observation) -> bool:
    return not seen.error and not seen.hash_matches


def _whom(inputs: Inputs, settings: Settings, server: Obj, store: StoreView) -> Whom:
    if shape.has_proxy(inputs) and inputs.rules is None:
        return targets_of_running(server, store)
    return lambda server_pods, proxy_pods: targets(inputs, settings, server_pods, proxy_pods)


def targets(
    inputs: Inputs, settings: Settings, server_pods: tuple[Obj, ...], proxy_pods: tuple[Obj, ...]
) -> list[Target]:
    """Whom to ask how the server is: its proxies, or itself where it has none."""
    metadata = inputs.server.metadata
    name = metadata.name
    if not shape.has_proxy(inputs):
        here = urlsplit(settings.own_url(metadata.namespace, name) or inputs.url)
        url = here._replace(path=inputs.path).geturl()
        running = [pod for pod in server_pods if is_running(pod)]
        return [observation.server_target(pod, server=name, url=url, transport=inputs.transport) for pod in running]
    expected = runconfig.route_hash(route(inputs))
    running = [pod for pod in proxy_pods if is_running(pod)]
    # a sidecar knows of its own pod and no other
    return [
        observation.proxy_target(
            pod, server=name, expected=expected, backends=(pod,) if shape.sidecar(inputs) else server_pods
        )
        for pod in running
    ]


def targets_of_running(server: Obj, store: StoreView) -> Whom:
    """Whom to ask while the object itself says nothing usable: what the newest good state of it has left behind."""
    name, known = server["metadata"]["name"], server.get("status") or {}
    expected = _written_hash(server, store)

    def whom(server_pods: tuple[Obj, ...], proxy_pods: tuple[Obj, ...]) -> Sequence[Target]:
        if expected is None:
            url, transport = known.get("url", ""), known.get("transport", "")
            running = [pod for pod in server_pods if is_running(pod)]
            return [observation.server_target(pod, server=name, url=url, transport=transport) for pod in running]
        running = [pod for pod in proxy_pods if is_running(pod)]
        return [observation.proxy_target(pod, server=name, expected=expected, backends=server_pods) for pod in running]

    return whom


def _written_hash(server: Obj, store: StoreView) -> str | None:
    """The hash of the route in the RunConfig as it was last written; None where there is no proxy."""
    namespace, name = server["metadata"]["namespace"], server["metadata"]["name"]
    begin = names.ChildNames(name).runconfig
    maps = [
        found
        for found in store.owned_by(server["metadata"]["uid"], CONFIG_MAP)
        if found["metadata"]["name"].startswith(begin) and _own(server, found)
    ]
    # while one proxy makes way for another there are two: the newer one counts
    written = max(maps, key=lambda found: found["metadata"].get("creationTimestamp", ""), default=None)
    if written is None:
        return None
    try:
        _, hashes = runconfig.parse((written.get("data") or {}).get(names.RUNCONFIG_KEY, "").encode())
    except runconfig.InvalidRunConfig:
        return ""
    return hashes.get(f"{namespace}/{name}", "")


def _tool_config(server: Obj, store: StoreView) -> Obj | None:
    name = referenced_tool_config(server)
    return store.get(MCP_TOOL_CONFIG, server["metadata"]["namespace"], name) if name else None


def _told(server: Obj, status: dict[str, Any]) -> Outcome:
    """The status, and an event when it becomes good or ceases to be."""
    before = {c["type"]: c for c in (server.get("status") or {}).get("conditions") or ()}
    notices = tuple(
        Notice(
            reason=condition["reason"],
            note=f"{condition['type']} is {condition['status']}: {condition['message'] or condition['reason']}",
            type="Normal" if condition["status"] == "True" else "Warning",
        )
        for condition in status["conditions"]
        if condition["type"] in ("Ready", "Available")
        and (condition["status"] == "True") != (before.get(condition["type"], {}).get("status") == "True")
    )
    return Outcome(status=status, events=notices, reason=status["conditions"][0]["reason"])


def _of_server(pod: Obj) -> Iterable[str]:
    server = (pod["metadata"].get("labels") or {}).get(names.LABEL_SERVER)
    return (f"{pod['metadata']['namespace']}/{server}",) if server else ()


def _uses_tool_config(server: Obj) -> Iterable[str]:
    name = referenced_tool_config(server)
    return (f"{server['metadata']['namespace']}/{name}",) if name else ()


def _servers_of_pod(pod: Obj, _: StoreView) -> Iterable[tuple[str, str]]:
    server = (pod["metadata"].get("labels") or {}).get(names.LABEL_SERVER)
    return ((pod["metadata"]["namespace"], server),) if server else ()


def _servers_of_tool_config(config: Obj, store: StoreView) -> Iterable[tuple[str, str]]:
    key = f"{config['metadata']['namespace']}/{config['metadata']['name']}"
    users = store.by_index(MCP_SERVER, BY_TOOL_CONFIG, key)
    return ((user["metadata"]["namespace"], user["metadata"]["name"]) for user in users)


def _mentions(catalogue: str) -> Callable[[Obj], Iterable[str]]:
    def mentions(server: Obj) -> Iterable[str]:
        namespace = server["metadata"]["namespace"]
        seal = ("Secret", names.ChildNames(server["metadata"]["name"]).seal)
        spec = server.get("spec") or {}
        yield from (f"{kind}/{namespace}/{name}" for kind, name in (*mentioned(spec), seal))
        if "runtime" in spec:
            yield f"ConfigMap/{catalogue}"

    return mentions


def _servers_that_mention(kind: Kind) -> MapFunction:
    def servers(obj: Obj, store: StoreView) -> Iterable[tuple[str, str]]:
        key = f"{kind}/{obj['metadata']['namespace']}/{obj['metadata']['name']}"
        users = store.by_index(MCP_SERVER, BY_CONTENT, key)
        return ((user["metadata"]["namespace"], user["metadata"]["name"]) for user in users)

    return servers


def controller(reconciler: Reconciler, contents: ContentReader) -> Controller:
    """The reconciler with all that wakes it."""
    without_content = [resource for resource in contents.watched.values() if resource.metadata_only]
    return Controller(
        resource=MCP_SERVER,
        reconcile=reconciler,
        refuse=reconciler.refuse,
        on_deleting=reconciler.leaving,
        owns=CHILDREN,
        optional=OPTIONAL,
        watches={
            POD: _servers_of_pod,
            MCP_TOOL_CONFIG: _servers_of_tool_config,
            MCP_SERVER: reconciler.forget_if_gone,
            **{resource: _servers_that_mention(kind) for kind, resource in contents.watched.items()},
        },
        metadata_only=without_content,
        trims={POD: looked_at, **dict.fromkeys(without_content, identity_only)},
        indexes={
            POD: {BY_SERVER: _of_server},
            MCP_SERVER: {BY_TOOL_CONFIG: _uses_tool_config, BY_CONTENT: _mentions(reconciler.runtimes)},
        },
        refused_retry=10.0,  # an object without our label is not watched: its going is noticed by looking again
    )

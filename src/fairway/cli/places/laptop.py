"""The world of a running `fairway up`, asked through its socket."""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fairway.cli.mistake import Mistake
from fairway.cli.places import LogSource, Outcome, matches
from fairway.controllers.rehearsal import Change, NowAndThen, Verdict
from fairway.controllers.resources import CATALOGUE
from fairway.kube.resource import SECRET, WELL_KNOWN, Obj, ObjectRef, Resource, UnknownResource
from fairway.local import control
from fairway.local.manifests import DEFAULT_NAMESPACE
from fairway.local.statedir import shown_path

_LOOK_EVERY = 0.1
_FRESH = 0.05
"""Seconds that an answer is good for: one look of a verb asks for many things."""


class Laptop:
    """A place on this machine."""

    is_local = True

    def __init__(self, state: Path, namespace: str) -> None:
        self.title = f"local mode ({shown_path(state)})"
        self.namespace = namespace or DEFAULT_NAMESPACE
        self._state = state
        self._known: list[Obj] = []
        self._asked = float("-inf")
        self._catalogue = WELL_KNOWN.plus(CATALOGUE.values()).plus((SECRET,))

    async def get(self, resource: Resource, namespace: str, name: str) -> Obj | None:
        found = await self.list(resource, namespace if resource.namespaced else None)
        return next((obj for obj in found if obj["metadata"]["name"] == name), None)

    async def list(self, resource: Resource, namespace: str | None, *, labels: Mapping[str, str] = {}) -> list[Obj]:
        if time.monotonic() - self._asked > _FRESH:
            answer = await asyncio.to_thread(control.ask, self._state, {"do": "objects"})
            self._known, self._asked = answer["objects"], time.monotonic()
        return [
            obj
            for obj in self._known
            if (obj["apiVersion"], obj["kind"]) == (resource.api_version, resource.kind)
            and (namespace is None or obj["metadata"].get("namespace") == namespace)
            and matches(obj, labels)
        ]

    async def log(
        self, source: LogSource, *, follow: bool = False, previous: bool = False, tail: int | None = None
    ) -> AsyncIterator[str]:
        if previous:
            raise Mistake("--previous: a log of local mode holds all runs of its container; leave the option out")
        path = self.log_path(source)
        if not path.exists():
            return  # it has said nothing yet; who follows looks again
        with path.open(encoding="utf-8", errors="replace") as file:
            lines = file.read().splitlines(keepends=True)
            rest = lines.pop() if lines and not lines[-1].endswith("\n") else ""
            for line in lines if tail is None else lines[max(0, len(lines) - tail) :]:
                yield line.rstrip("\n")
            while follow:
                piece = file.readline()
                if not piece:
                    if await self._is_over(source):
                        break
                    await asyncio.sleep(_LOOK_EVERY)
                    continue
                rest += piece
                if rest.endswith("\n"):
                    yield rest.rstrip("\n")
                    rest = ""
            if rest:
                yield rest

    def log_path(self, source: LogSource) -> Path:
        own = self._state / "logs" / f"{source.pod}.log"
        return own if source.container != "proxy" else self._state / "logs" / "proxy.log"

    async def _is_over(self, source: LogSource) -> bool:
        from fairway.kube.resource import POD

        self._asked = max(self._asked, time.monotonic() - 1.0)  # the pod's end need not be seen at once
        try:
            return await self.get(POD, source.namespace, source.pod) is None
        except control.NotRunning:
            return True

    async def resource_of(self, obj: Mapping[str, Any]) -> Resource:
        try:
            return self._catalogue.of(obj)
        except UnknownResource:
            raise Mistake(f"{obj['kind']} {obj['metadata']['name']} means nothing in local mode") from None

    async def apply(self, objects: Sequence[Obj], *, force: bool = False) -> AsyncIterator[tuple[Obj, Outcome]]:
        del force  # nobody else writes here
        told: list[tuple[Obj, Outcome]] = []
        for obj in objects:
            before = await self._before(obj)
            told.append((obj, "created" if before is None else "changed" if _differs(obj, before) else "unchanged"))
        answer = await asyncio.to_thread(control.ask, self._state, {"do": "apply", "objects": list(objects)})
        self._asked = float("-inf")
        for pair in told:
            yield pair
        for note in answer["notes"]:
            print(note)

    async def dry_run(self, obj: Obj, *, force: bool = False) -> Obj:
        del force
        before = await self._before(obj)
        if before is None:
            return {**obj, "metadata": {**obj["metadata"], "uid": "", "generation": 1}}
        kept = {k: before["metadata"][k] for k in ("uid", "generation", "creationTimestamp", "resourceVersion")}
        status = {"status": before["status"]} if "status" in before else {}
        return {**obj, "metadata": {**obj["metadata"], **kept}, **status}

    async def rehearse(self, objects: Sequence[Obj]) -> NowAndThen:
        answer = await asyncio.to_thread(control.ask, self._state, {"do": "rehearse", "objects": list(objects)})
        return [self._verdict(told) for told in answer["now"]], [self._verdict(told) for told in answer["then"]]

    def _verdict(self, told: Mapping[str, Any]) -> Verdict:
        changes = [
            Change(self._catalogue.ref(c["wanted"] or c["live"]), c["live"], c["wanted"]) for c in told["changes"]
        ]
        by_kind = {resource.kind: resource for resource in self._catalogue.values()}
        taken = [by_kind[kind].ref(namespace, name) for kind, namespace, name in told["taken"]]
        return Verdict(told["owner"], told["acts"], tuple(changes), tuple(taken), told["status"])

    async def delete(self, refs: Sequence[ObjectRef]) -> AsyncIterator[tuple[ObjectRef, bool]]:
        found = [(ref, await self.get(ref.resource, ref.namespace, ref.name) is not None) for ref in refs]
        keys = [(ref.resource.kind, ref.namespace, ref.name) for ref, there in found if there]
        await asyncio.to_thread(control.ask, self._state, {"do": "delete", "keys": keys})
        self._asked = float("-inf")
        for pair in found:
            yield pair

    async def _before(self, obj: Obj) -> Obj | None:
        resource = await self.resource_of(obj)
        return await self.get(resource, obj["metadata"]["namespace"], obj["metadata"]["name"])


def _differs(obj: Obj, before: Obj) -> bool:
    def content(of: Obj) -> Obj:
        metadata = {k: v for k, v in of["metadata"].items() if k in ("labels", "annotations") and v}
        return {**{k: v for k, v in of.items() if k not in ("metadata", "status")}, "metadata": metadata}

    if obj["kind"] == "Secret":  # its values stay where they are
        return True
    return content(obj) != content(before)

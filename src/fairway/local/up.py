"""`fairway up` from start to stop: manifests in, processes and a picture of them out."""

import asyncio
import json
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairway.api.manifest import InvalidManifest
from fairway.local import manifests, view
from fairway.local.check import Check
from fairway.local.control import Control
from fairway.local.manifests import Fingerprint, Manifests
from fairway.local.mode import LocalMode
from fairway.local.ports import NoPortLeft
from fairway.local.screen import Screen, screen
from fairway.local.statedir import InUse, StateDirectory
from fairway.local.view import Row
from fairway.local.volumes import replace_file
from fairway.process.warden import Warden
from fairway.runtime.logs import configure_logs

GRACE = 5.0
LOOK_AT_FILES_EVERY = 0.4


@dataclass(frozen=True, slots=True)
class Up:
    """What the user asked for."""

    files: tuple[str, ...]
    watch: bool = False
    check: bool = False
    timeout: float = 60.0
    port_base: int = 7001
    state: Path = Path(".fairway")


def run(up: Up) -> int:
    """0 when stopped as asked or when every check passed, 1 when one did not, 2 when the user has something to fix."""
    import uvloop

    seen = manifests.fingerprint(up.files)
    try:
        loaded = manifests.load(up.files)
    except InvalidManifest as invalid:
        print(invalid, file=sys.stderr)  # noqa: T201
        return 2
    try:
        with StateDirectory(up.state) as state, Warden() as warden, (state.logs / "fairway.log").open("w") as log:
            configure_logs(level="info", stream=log)
            return uvloop.run(_run(up, _Read(loaded, seen), state, warden))
    except (InUse, NoPortLeft) as error:
        print(f"fairway up: {error}", file=sys.stderr)  # noqa: T201
        return 2
    except BrokenPipeError:
        raise  # whoever read our output has enough of it
    except OSError as error:
        print(f"fairway up: {error.filename or up.state}: {(error.strerror or str(error)).lower()}", file=sys.stderr)  # noqa: T201
        return 2


@dataclass(frozen=True, slots=True)
class _Read:
    """Manifests, and what their files looked like just before they were read."""

    manifests: Manifests
    fingerprint: Fingerprint


async def _run(up: Up, read: _Read, state: StateDirectory, warden: Warden) -> int:
    mode = LocalMode(state, warden, port_base=up.port_base)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # under nohup, a hang-up is not for us
            loop.add_signal_handler(number, stop.set)
    notes = [*read.manifests.skipped, *mode.put(read.manifests)]
    shown = screen(sys.stdout, logs=state.logs)
    for note in notes:
        shown.note(note)
    working = [
        asyncio.create_task(mode.run(), name="local mode"),
        asyncio.create_task(_draw(mode, shown, state), name="screen"),
    ]
    if up.watch:
        working.append(asyncio.create_task(_follow(up.files, read.fingerprint, mode, shown), name="manifests"))
    stopping = asyncio.create_task(stop.wait())
    check = asyncio.create_task(Check(mode, shown, timeout=up.timeout).run()) if up.check else None
    try:
        async with Control(state.path, mode, stop=stop.set):
            return await _first_of(working, stopping, check)
    finally:
        tasks: list[asyncio.Task[Any]] = [*working, stopping, *([check] if check else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        with suppress(BrokenPipeError):
            shown.show(mode.rows())  # what changed within the screen's patience
            shown.close()
        await _stop(mode, stop)


async def _first_of(
    working: Sequence[asyncio.Task[None]], stopping: asyncio.Task[Any], check: asyncio.Task[bool] | None
) -> int:
    """The exit code, once the user stops it, the check is through, or a bug ends what should go on for ever."""
    tasks: list[asyncio.Task[Any]] = [*working, stopping, *([check] if check else [])]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in working:
        if task.done():
            task.result()
    if check is None:
        return 0
    return 0 if check.done() and check.result() else 1


async def _stop(mode: LocalMode, stop: asyncio.Event) -> None:
    """In order; a second ctrl-c makes it quick."""
    stop.clear()
    orderly = asyncio.create_task(mode.stop(grace=GRACE))
    impatient = asyncio.create_task(stop.wait())
    await asyncio.wait([orderly, impatient], return_when=asyncio.FIRST_COMPLETED)
    impatient.cancel()
    if not orderly.done():
        orderly.cancel()  # the warden kills what is left
    with suppress(asyncio.CancelledError):
        await orderly


async def _draw(mode: LocalMode, shown: Screen, state: StateDirectory) -> None:
    before: list[Row] | None = None
    changed = asyncio.Event()
    mode.on_change(changed.set)
    while True:
        changed.clear()
        rows = mode.rows()
        if rows != before or shown.due is not None:
            shown.show(rows)
            before = rows
        _tell_others(state, mode, rows)
        with suppress(TimeoutError):
            async with asyncio.timeout(shown.due):
                await changed.wait()
        await asyncio.sleep(shown.patience)


def _tell_others(state: StateDirectory, mode: LocalMode, rows: Sequence[Row]) -> None:
    """For `fairway call` and its like: which servers there are, where, and in what state."""
    status = {view.key_of(server): server.get("status", {}) for server in mode.servers()}
    servers = {
        row.key: {
            "url": row.url,
            "ready": row.ready,
            "hopeless": row.hopeless,
            "message": row.trouble,
            "token": row.token,
            "status": status.get(row.key, {}),
        }
        for row in rows
    }
    replace_file(state.servers, json.dumps({"servers": servers}, indent=2).encode() + b"\n")


async def _follow(files: Sequence[str], seen: Fingerprint, mode: LocalMode, shown: Screen) -> None:
    """Re-reads the manifests when a file changes; while they are broken, what ran keeps running."""
    while True:
        await asyncio.sleep(LOOK_AT_FILES_EVERY)
        now = manifests.fingerprint(files)
        if now == seen:
            continue
        seen = now
        try:
            loaded = manifests.load(files)
            notes = mode.put(loaded)
        except InvalidManifest as invalid:
            for problem in invalid.problems:
                shown.note(str(problem))
            shown.note("not applied: the last good manifests stay in force")
            continue
        except NoPortLeft as error:
            shown.note(str(error))
            continue
        for note in (*loaded.skipped, *notes):
            shown.note(note)

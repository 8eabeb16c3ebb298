"""The proxy process: from its options to a clean end."""

import asyncio
import contextlib
import gc
import logging
import os
import resource
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import uvloop

from fairway.mcp.http_server import HttpServer
from fairway.proxy.address import Address
from fairway.proxy.admin import Admin
from fairway.proxy.gateway import Configs, Gateway
from fairway.proxy.log import set_up
from fairway.proxy.middleware.origin import is_loopback
from fairway.proxy.topology import Topology

PRE_STOP: Final = 5.0
"""Seconds for which a pod that ends still takes requests: until then, others may not know yet that it ends."""
GRACE: Final = 20.0
"""Seconds that calls get to finish; with PRE_STOP well below what Kubernetes gives a pod by default."""

log = logging.getLogger("fairway.proxy")


class UserError(Exception):
    """Something the user has to change; shown as one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How long the end may take, and where the admin port is."""

    admin: Address | None
    pre_stop: float | None = None
    """None decides by where the process runs."""
    grace: float = GRACE
    log_level: str = "info"

    def pre_stop_seconds(self) -> float:
        if self.pre_stop is not None:
            return self.pre_stop
        return PRE_STOP if "KUBERNETES_SERVICE_HOST" in os.environ else 0.0


def run(configs: Configs, topology: Topology, options: Options) -> int:
    """Runs until SIGTERM or SIGINT, and returns the exit code."""
    set_up(options.log_level)
    _raise_file_limit()
    # what is there at the start stays; looking through it again and again would stall requests
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        try:
            runner.run(_serve(configs, topology, options))
        except UserError as error:
            sys.stderr.write(f"fairway proxy: {error}\n")
            return 2
    return 0


async def _serve(configs: Configs, topology: Topology, options: Options) -> None:
    stop = asyncio.Event()
    hurry = asyncio.Event()
    loop = asyncio.get_running_loop()

    def told_to_stop() -> None:
        (hurry if stop.is_set() else stop).set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, told_to_stop)
    gateway = Gateway(configs, topology)
    here = options.admin is not None and is_loopback(options.admin[0])
    admin = HttpServer(Admin(gateway, terminating=stop.is_set, loopback=here))
    if options.admin is not None:
        await _open_admin(admin, options.admin)
    work = asyncio.create_task(gateway.run())
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait((work, stopping), return_when=asyncio.FIRST_COMPLETED)
    if work.done():
        work.result()  # it never ends by itself, so this raises what went wrong
    ending = asyncio.create_task(_end(gateway, options))
    hurried = asyncio.create_task(hurry.wait())
    await asyncio.wait((ending, hurried), return_when=asyncio.FIRST_COMPLETED)
    for task in (ending, hurried, work):
        task.cancel()
    results = await asyncio.gather(ending, hurried, work, return_exceptions=True)
    await admin.stop(grace=0.2)
    for result in results:
        if isinstance(result, Exception):
            raise result
    log.info("stopped")


async def _open_admin(admin: HttpServer, address: Address) -> None:
    host, port = address
    try:
        bound = await admin.listen(host=host, port=port)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise UserError(f"--admin: cannot listen on {host}:{port}: {reason}") from None
    log.info("admin", extra={"address": f"{host}:{bound}"})


async def _end(gateway: Gateway, options: Options) -> None:
    wait = options.pre_stop_seconds()
    log.info("stopping", extra={"accepting_for": wait, "grace": options.grace})
    gateway.leave()
    await asyncio.sleep(wait)
    await gateway.stop(grace=options.grace)


def _raise_file_limit() -> None:
    """Each client and each server connection is a file, and the usual limit is meant for other programs."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


__all__: Sequence[str] = ("Options", "UserError", "run")

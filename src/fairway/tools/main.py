"""The process: loads the source, serves its functions, ends without dropping a call."""

import asyncio
import gc
import hashlib
import io
import logging
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, NoReturn

import msgspec
import uvloop

from fairway.mcp.endpoint import LOCAL_NAMES, McpEndpoint
from fairway.mcp.http_server import HttpServer, Request, Response
from fairway.mcp.server import McpServer, Tool
from fairway.tools.arguments import UnsupportedSignatureError
from fairway.tools.function_tool import Outcome, function_tool
from fairway.tools.source import Source, SourceError, load_source
from fairway.tools.threads import ThreadPool

log = logging.getLogger("fairway.tools")

TERMINATION_LOG: Final = Path("/dev/termination-log")
"""Kubernetes puts what a container writes here into the status of its pod."""
TERMINATION_LOG_VARIABLE: Final = "FAIRWAY_TERMINATION_LOG"
"""Names another file for the same purpose, where there is no kubelet: local mode sets it."""


def run(
    *,
    file: Path,
    host: str = "0.0.0.0",  # noqa: S104 - in a pod, every address is the pod's own
    port: int = 8080,
    path: str = "/mcp",
    name: str | None = None,
    threads: int = 32,
    grace: float = 25,
) -> int:
    """`fairway tools`: serves until SIGTERM or SIGINT and returns the exit code.

    0: stopped as told. 1: the source is broken. 2: the file cannot be read, or the address cannot be had.
    """
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)  # what a tool prints shows up in the log at once
    if not path.startswith("/"):
        return _give_up(f"--path {path} has to begin with /", 2)
    pool: ThreadPool[Outcome] = ThreadPool(size=threads)
    try:
        server = load(file, pool=pool, name=name)
    except SourceError as error:
        return _give_up(str(error), 1)
    except OSError as error:
        return _give_up(f"{file}: {_reason(error)}", 2)
    # what was made until now lives as long as the process: the collector need not look at it again
    gc.collect()
    gc.freeze()
    try:
        finished = uvloop.run(_serve(server, host=host, port=port, path=path, grace=grace))
    except OSError as error:
        return _give_up(f"cannot listen on {host}:{port}: {_reason(error)}", 2)
    if not finished or pool.unfinished:
        _leave(0)  # a thread that still runs a tool would otherwise be met by the interpreter's end in the middle of it
    return 0


def load(file: Path, *, pool: ThreadPool[Outcome], name: str | None = None) -> McpServer:
    """The server of a source file. Raises SourceError or OSError."""
    source = load_source(file)
    return McpServer(
        name=name or file.stem,
        version=hashlib.sha256(file.read_bytes()).hexdigest()[:12],
        tools=_tools(source, pool),
        instructions=source.doc,
    )


def _tools(source: Source, pool: ThreadPool[Outcome]) -> list[Tool]:
    tools = []
    for function in source.functions:
        try:
            tools.append(function_tool(function.name, function.target, pool))
        except (UnsupportedSignatureError, ValueError) as error:
            hint = "fix it, or start the function's name with _ so that it is no tool"
            raise SourceError(source.path, function.line, f"{function.name}(): {error}; {hint}") from None
    return tools


async def _serve(server: McpServer, *, host: str, port: int, path: str, grace: float) -> bool:
    hosts = LOCAL_NAMES if f"[{host}]" in LOCAL_NAMES or host in LOCAL_NAMES else None
    endpoint = McpEndpoint(server, path=path, hosts=hosts)
    http = HttpServer(lambda request: health(request) or endpoint(request))
    health = _health(http, len(server.tools))
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, _on_signal, stop)
    bound = await http.listen(host=host, port=port)
    shown = f"[{host}]" if ":" in host else host
    log.info("%d tools at http://%s:%d%s: %s", len(server.tools), shown, bound, path, ", ".join(server.tools))
    await stop.wait()
    log.info("stopping: %d calls in flight", endpoint.calls)
    return await http.stop(grace=grace)


def _on_signal(stop: asyncio.Event) -> None:
    if stop.is_set():
        _leave(1)  # asked twice: whoever asks does not want to wait
    stop.set()


def _health(http: HttpServer, tools: int) -> Callable[[Request], Response | None]:
    """/health: the process lives; /ready: it also takes calls. None for every other request."""

    def answer(request: Request) -> Response | None:
        if request.path not in ("/health", "/ready") or request.method not in ("GET", "HEAD"):
            return None
        stopping = http.stopping.is_set()
        status = 503 if stopping and request.path == "/ready" else 200
        body = msgspec.json.encode({"status": "stopping" if stopping else "ok", "tools": tools})
        return Response(status=status, content_type="application/json", body=body)

    return answer


def _reason(error: OSError) -> str:
    return str(error) if error.errno is None or error.errno < 0 else os.strerror(error.errno)


def _give_up(message: str, code: int) -> int:
    print(f"error: {message}", file=sys.stderr, flush=True)  # noqa: T201 - this is the program's answer to its caller
    named = os.environ.get(TERMINATION_LOG_VARIABLE)
    termination_log = Path(named) if named else TERMINATION_LOG
    if named or termination_log.is_file():  # the default only where a kubelet mounted it
        with suppress(OSError):
            termination_log.write_text(message)
    return code


def _leave(code: int) -> NoReturn:
    logging.shutdown()
    with suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)

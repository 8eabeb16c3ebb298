"""A server of the SDK whose tool works for a while, tells how far it is, and notes when nobody wants it any more:
`python -m tests.conformance.working_server`, or `... stdio` for standard input and output.
"""

import asyncio
import logging
import socket
import sys

import uvicorn
from mcp.server.mcpserver import Context, MCPServer

from tests.conformance.fixture_server import Announced

STEPS = 4


class Worker:
    """The tools, and what became of the work."""

    def __init__(self) -> None:
        self.began = self.ended = self.cancelled = 0

    async def work(self, ctx: Context, pause: float = 0.05) -> str:
        """Takes its time, in steps."""
        self.began += 1
        try:
            for step in range(STEPS):
                await ctx.report_progress(step + 1, STEPS)
                await asyncio.sleep(pause)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        self.ended += 1
        return "worked"

    def counts(self) -> dict[str, int]:
        """What became of the work so far."""
        return vars(self)

    def fail(self) -> str:
        """Fails."""
        raise ValueError("out of order")


def main(transport: str = "http") -> None:
    logging.basicConfig(level=logging.CRITICAL)
    server, worker = MCPServer("working"), Worker()
    for tool in (worker.work, worker.counts, worker.fail):
        server.add_tool(tool)
    if transport == "stdio":
        server.run("stdio")
        return
    config = uvicorn.Config(server.streamable_http_app(), log_level="critical", timeout_graceful_shutdown=1)
    Announced(config).run(sockets=[socket.create_server(("127.0.0.1", 0))])


if __name__ == "__main__":
    main(*sys.argv[1:])

"""A proxy that is wrong on purpose: it drops every Mcp-* header. Comparisons have to notice."""

import asyncio
import sys
from urllib.parse import urlsplit


async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str, port: int) -> None:
    upstream, to_upstream = await asyncio.open_connection(host, port)
    head = (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")
    kept = [line for line in head[:-2] if not line.lower().startswith((b"mcp-", b"connection:"))]
    to_upstream.write(b"\r\n".join([*kept, b"Connection: close", b"", b""]))
    length = next((int(line.split(b":")[1]) for line in head if line.lower().startswith(b"content-length:")), 0)
    to_upstream.write(await reader.readexactly(length))
    while piece := await upstream.read(65536):
        writer.write(piece)
        await writer.drain()
    writer.close()
    to_upstream.close()


async def main(url: str) -> None:
    target = urlsplit(url)
    server = await asyncio.start_server(lambda r, w: relay(r, w, target.hostname, target.port), "127.0.0.1", 0)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}{target.path}", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))

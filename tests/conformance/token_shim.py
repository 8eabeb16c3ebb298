"""Adds a token to every request, since the suite cannot: `token_shim URL FILE` forwards bytes and waits for nothing."""

import asyncio
import sys
from pathlib import Path
from urllib.parse import urlsplit


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while piece := await reader.read(65536):
            writer.write(piece)
            await writer.drain()
    except ConnectionError:
        pass
    finally:
        writer.close()


async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str, port: int, token: bytes) -> None:
    """One request; both sides are told to end the connection after it, so that the next one gets a token as well."""
    try:
        first, *lines = (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")[:-2]
    except asyncio.IncompleteReadError:
        writer.close()
        return
    upstream, to_upstream = await asyncio.open_connection(host, port)
    kept = [line for line in lines if not line.lower().startswith(b"connection:")]
    to_upstream.write(b"\r\n".join([first, b"Authorization: Bearer " + token, b"Connection: close", *kept, b"", b""]))
    asking = asyncio.create_task(pump(reader, to_upstream))
    await pump(upstream, writer)
    asking.cancel()
    to_upstream.close()


async def main(url: str, token: bytes) -> None:
    target = urlsplit(url)
    server = await asyncio.start_server(
        lambda r, w: relay(r, w, target.hostname or "", target.port or 80, token), "127.0.0.1", 0
    )
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}{target.path}", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2]).read_bytes().strip()))

"""Standard input and output of a process behind a socket."""

import asyncio

import pytest

from fairway.local.control import inside
from fairway.local.stdio import SOCKET, StdioSocket

pytestmark = pytest.mark.anyio

ECHO = "import sys\nfor line in sys.stdin: print('heard', line.strip(), flush=True)\nprint('end', flush=True)\n"


async def started():
    import sys

    return await asyncio.create_subprocess_exec(
        sys.executable, "-c", ECHO, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )


async def connected(directory):
    with inside(directory):
        return await asyncio.open_unix_connection(SOCKET)


async def said(reader):
    async with asyncio.timeout(20):
        return await reader.readline()


async def test_lines_go_both_ways_and_the_end_of_the_process_is_the_end_of_the_connection(tmp_path):
    process = await started()
    async with StdioSocket(tmp_path, process):
        assert (tmp_path / SOCKET).stat().st_mode & 0o777 == 0o600
        reader, writer = await connected(tmp_path)
        writer.write(b"one\n")
        assert await said(reader) == b"heard one\n"
        process.kill()
        assert await said(reader) == b""
        writer.close()
    await process.wait()
    assert not (tmp_path / SOCKET).exists()


async def test_whoever_comes_back_finds_the_process_as_it_was(tmp_path):
    process = await started()
    async with StdioSocket(tmp_path, process):
        first, writer = await connected(tmp_path)
        writer.write(b"one\n")
        assert await said(first) == b"heard one\n"
        writer.close()
        second, writer = await connected(tmp_path)
        writer.write(b"two\n")
        assert await said(second) == b"heard two\n"
        third, newest = await connected(tmp_path)
        newest.write(b"three\n")
        assert await said(third) == b"heard three\n"
        assert await said(second) == b"", "the newest wins"
        newest.close()
    assert await asyncio.wait_for(process.wait(), 20) == 0, "the end of its input"


async def test_a_deep_directory_is_no_obstacle(tmp_path):
    deep = tmp_path / ("d" * 60) / ("e" * 60)
    deep.mkdir(parents=True)
    process = await started()
    async with StdioSocket(deep, process):
        reader, writer = await connected(deep)
        writer.write(b"one\n")
        assert await said(reader) == b"heard one\n"
        writer.close()
    await process.wait()

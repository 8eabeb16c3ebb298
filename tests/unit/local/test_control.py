"""The socket of a running `fairway up`."""

import asyncio
import socket

import pytest

from fairway.local import control
from fairway.local.control import Control, NotRunning, Refused, ask, is_running

pytestmark = pytest.mark.anyio


class Mode:
    def __init__(self):
        self.applied = {}
        self.removed = []
        self.refuses = None

    def objects(self):
        return [{"kind": "Secret", "metadata": {"name": "s"}, "data": {"key": "c2VjcmV0"}}, {"kind": "Pod"}]

    def apply(self, objects):
        if self.refuses:
            raise self.refuses
        self.applied |= objects
        return ["a note"]

    def remove(self, keys):
        self.removed += keys


async def asked(directory, question):
    return await asyncio.to_thread(ask, directory, question)


async def test_objects_are_told_without_the_values_of_secrets(tmp_path):
    async with Control(tmp_path, Mode()):
        answer = await asked(tmp_path, {"do": "objects"})
    assert answer["objects"] == [
        {"kind": "Secret", "metadata": {"name": "s"}, "data": {"key": ""}},
        {"kind": "Pod"},
    ]


async def test_objects_are_applied_and_removed_by_kind_namespace_and_name(tmp_path):
    mode = Mode()
    obj = {"kind": "MCPServer", "metadata": {"namespace": "n", "name": "a"}, "spec": {}}
    async with Control(tmp_path, mode):
        assert await asked(tmp_path, {"do": "apply", "objects": [obj]}) == {"notes": ["a note"]}
        await asked(tmp_path, {"do": "delete", "keys": [["MCPServer", "n", "a"]]})
    assert mode.applied == {("MCPServer", "n", "a"): obj}
    assert mode.removed == [("MCPServer", "n", "a")]


async def test_a_refusal_comes_back_in_words_and_ends_nothing(tmp_path):
    mode = Mode()
    mode.refuses = ValueError("no free port")
    async with Control(tmp_path, mode):
        with pytest.raises(Refused, match="no free port"):
            await asked(tmp_path, {"do": "apply", "objects": []})
        with pytest.raises(Refused, match="another version"):
            await asked(tmp_path, {"do": "dance"})
        assert await asyncio.to_thread(is_running, tmp_path)


async def test_nonsense_on_the_socket_disturbs_nobody(tmp_path):
    def talk():
        with control._connected(tmp_path) as connection:
            connection.sendall(b"nonsense\n")
            assert connection.recv(10) == b""

    async with Control(tmp_path, Mode()):
        await asyncio.to_thread(talk)
        assert (await asked(tmp_path, {"do": "objects"}))["objects"]


async def test_only_the_owner_can_open_the_socket(tmp_path):
    async with Control(tmp_path, Mode()):
        assert (tmp_path / control.SOCKET).stat().st_mode & 0o777 == 0o600


def test_without_an_up_nobody_answers(tmp_path):
    assert not is_running(tmp_path)
    assert not is_running(tmp_path / "missing")
    with pytest.raises(NotRunning, match="no `fairway up` runs here"):
        ask(tmp_path, {"do": "objects"})


def test_a_socket_that_a_killed_up_left_behind_is_no_running_one(tmp_path):
    with socket.socket(socket.AF_UNIX) as left, control.inside(tmp_path):
        left.bind(control.SOCKET)
    assert not is_running(tmp_path)


async def test_a_deep_directory_is_no_obstacle(tmp_path):
    deep = tmp_path / ("d" * 60) / ("e" * 60)
    deep.mkdir(parents=True)
    async with Control(deep, Mode()):
        assert await asyncio.to_thread(is_running, deep)

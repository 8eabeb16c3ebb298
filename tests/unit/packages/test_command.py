"""Packages fetched by the real uv and npm, from an index made here."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.packages import Index, serving

REQUEST = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "echo", "arguments": {"text": "hi "}}}
NODE = """#!/usr/bin/env node
require("node:readline").createInterface({ input: process.stdin }).on("line", (line) => {
  const { id, params } = JSON.parse(line);
  const text = params.arguments.text + process.argv.slice(2).join(" ");
  console.log(JSON.stringify({ jsonrpc: "2.0", id, result: { content: [{ type: "text", text }] } }));
});
"""
needs_npm = pytest.mark.skipif(shutil.which("npm") is None, reason="UNTESTED without node and npm on the PATH")


@pytest.fixture
def index() -> Iterator[Index]:
    with serving(Index()) as served:
        yield served


def fairway(index: Index, home: Path, *arguments: str, text: str = "") -> subprocess.CompletedProcess[str]:
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "UV_DEFAULT_INDEX": index.simple,
        "npm_config_registry": index.npm,
    }
    return subprocess.run(
        [sys.executable, "-m", "fairway", "package", *arguments],
        env=environment,
        input=text,
        capture_output=True,
        text=True,
    )


def said(output: str) -> str:
    return str(json.loads(output)["result"]["content"][0]["text"])


def test_a_package_is_fetched_and_its_program_linked(index: Index, tmp_path: Path) -> None:
    index.add_wheel("echo-server", "1.0", requires=("leaf==2.0",))
    index.add_wheel("leaf", "2.0", source="", programs={"leaf": "leaf:nothing"})
    done = fairway(index, tmp_path, "fetch", "--into", str(tmp_path / "p"), "--pypi", "Echo_Server", "--version", "1.0")
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    ran = subprocess.run(
        [tmp_path / "p" / "run", "a b", "$(x)"], input=json.dumps(REQUEST), capture_output=True, text=True
    )
    assert said(ran.stdout) == "hi a b $(x)"


def test_a_package_becomes_the_server_and_says_nothing_of_its_own(index: Index, tmp_path: Path) -> None:
    index.add_wheel("echo-server", "1.0")
    words = ("run", "--cache", str(tmp_path / "c"), "--pypi", "echo-server", "--version", "1.0", "--", "--loud")
    assert said(fairway(index, tmp_path, *words, text=json.dumps(REQUEST)).stdout) == "hi --loud"
    asked = len(index.asked)
    assert said(fairway(index, tmp_path, *words, text=json.dumps(REQUEST)).stdout) == "hi --loud"
    assert len(index.asked) == asked, "what is there is not fetched again"


@pytest.mark.parametrize(
    ("programs", "words", "message"),
    [
        ({}, (), "which program is meant: it has none"),
        ({"a": "m:f", "b": "m:f"}, (), "which program is meant: it has a, b; name one in spec.command"),
        ({"a": "m:f"}, ("--program=x",), "there is no program x: it has a; name one in spec.command"),
    ],
)
def test_what_program_is_meant_has_to_be_clear(
    index: Index, tmp_path: Path, programs: dict[str, str], words: tuple[str, ...], message: str
) -> None:
    index.add_wheel("m", "1.0", programs=programs)
    done = fairway(index, tmp_path, "fetch", "--into", str(tmp_path / "p"), "--pypi", "m", "--version", "1.0", *words)
    assert done.returncode == 1
    assert done.stderr.strip() == f"package m 1.0: {message}" + (
        "" if "name one" in message else "; name one in spec.command"
    )


def test_a_version_that_does_not_exist_is_named_without_a_traceback(index: Index, tmp_path: Path) -> None:
    index.add_wheel("echo-server", "1.0")
    done = fairway(index, tmp_path, "fetch", "--into", str(tmp_path), "--pypi", "echo-server", "--version", "9.9")
    assert done.returncode == 1
    assert "echo-server 9.9: " in done.stderr
    assert "no version of echo-server==9.9" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("words", [(), ("fetch",), ("run", "--pypi", "a", "--npm", "b"), ("dance",)])
def test_a_mistake_in_the_arguments_is_one_line(index: Index, tmp_path: Path, words: tuple[str, ...]) -> None:
    done = fairway(index, tmp_path, *words)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1


@needs_npm
def test_a_package_for_node_becomes_the_server(index: Index, tmp_path: Path) -> None:
    index.add_node(
        {"name": "@team/echo", "version": "1.2.3", "bin": {"echo": "./main.js"}, "dependencies": {"leaf": "2.0.0"}},
        {"main.js": 'require("leaf");\n' + NODE.partition("\n")[2]},
    )
    index.add_node({"name": "leaf", "version": "2.0.0"}, {"index.js": ""})
    words = ("run", "--cache", str(tmp_path / "c"), "--npm", "@team/echo", "--version", "1.2.3", "--", "a b")
    ran = fairway(index, tmp_path, *words, text=json.dumps(REQUEST))
    assert ran.stdout, ran.stderr
    assert said(ran.stdout) == "hi a b"


@needs_npm
@pytest.mark.parametrize(
    ("bins", "words", "message"),
    [
        ({}, (), "package many: which program is meant: it has none; name one in spec.command"),
        ({"a": "a.js", "b": "a.js"}, (), "package many: which program is meant: it has a, b; name one in spec.command"),
        ({"a": "a.js"}, ("--program=x",), "package many: there is no program x: it has a; name one in spec.command"),
    ],
)
def test_what_program_of_a_package_for_node_is_meant_has_to_be_clear(
    index: Index, tmp_path: Path, bins: dict[str, str], words: tuple[str, ...], message: str
) -> None:
    index.add_node({"name": "many", "version": "1.0.0", "bin": bins}, {"a.js": NODE})
    done = fairway(
        index, tmp_path, "fetch", "--into", str(tmp_path / "p"), "--npm", "many", "--version", "1.0.0", *words
    )
    assert done.returncode == 1
    assert done.stderr.strip().splitlines()[-1] == message


@needs_npm
def test_a_package_for_node_that_does_not_exist_is_named(index: Index, tmp_path: Path) -> None:
    done = fairway(index, tmp_path, "fetch", "--into", str(tmp_path / "p"), "--npm", "nothing", "--version", "1.0.0")
    assert done.returncode == 1
    assert "package nothing: version 1.0.0 could not be fetched" in done.stderr

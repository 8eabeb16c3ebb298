"""Manifests to begin with."""

import pytest
import yaml

from fairway.api.manifest import parse
from fairway.cli.init import init
from fairway.cli.mistake import Mistake
from fairway.cli.starter import Wish, manifest


@pytest.mark.parametrize(
    ("wish", "name", "spec"),
    [
        (Wish(), "tools", {"inlineTools"}),
        (Wish(name="mine"), "mine", {"inlineTools"}),
        (Wish(image="ghcr.io/acme/Weather_MCP:1.4", port=3000), "weather-mcp", {"image", "transport", "port"}),
        (Wish(pypi="mcp-server-time==2026.10.19"), "mcp-server-time", {"package"}),
        (Wish(npm="@acme/files@1.2.3", arguments=("/data",)), "files", {"package"}),
        (Wish(command="python -u ./notes.py"), "notes", {"image", "command", "transport"}),
    ],
)
def test_each_source_gives_a_commented_manifest_that_applies(wish, name, spec):
    made, text = manifest(wish)
    assert made == name
    (document,) = parse(text, file="x.yaml")
    assert document.object["metadata"]["name"] == name
    assert document.object["spec"].keys() == spec
    assert text.count("#") > 3


@pytest.mark.parametrize(
    ("wish", "words"),
    [
        (Wish(image="a", pypi="b==1"), "a server has one source"),
        (Wish(pypi="mcp-server-time"), "name one exact version"),
        (Wish(pypi="mcp-server-time>=1"), "name one exact version"),
        (Wish(npm="@acme/files"), "name one exact version"),
        (Wish(npm="@acme/files@latest"), "name one exact version"),
        (Wish(name="No Name"), "is no name of a server"),
        (Wish(command="'"), "--command"),
        (Wish(command=" "), "a command is missing"),
        (Wish(arguments=("x",)), "arguments behind --"),
    ],
)
def test_what_cannot_become_a_manifest_is_said(wish, words):
    with pytest.raises(Mistake, match=words):
        manifest(wish)


def test_words_of_the_user_stay_values():
    _, text = manifest(Wish(name="x", image='a"\n#b: c'))
    assert yaml.safe_load(text)["spec"]["image"] == 'a"\n#b: c'


def test_a_file_that_is_there_is_not_replaced(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert init("mine") == 0
    assert "fairway up -f mine.yaml" in capsys.readouterr().out
    (tmp_path / "mine.yaml").write_text("mine")
    with pytest.raises(Mistake, match=r"mine.yaml is there already"):
        init("mine")
    assert (tmp_path / "mine.yaml").read_text() == "mine"
    assert init("mine", force=True) == 0
    with pytest.raises(Mistake, match="no such file or directory"):
        init("mine", output="nowhere/x.yaml")


def test_what_the_kind_does_not_take_is_refused_before_anything_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Mistake, match=r"spec.image"):
        init("x", image="two words")
    assert list(tmp_path.iterdir()) == []

"""What a shell completes."""

import json
import shutil
import subprocess

import pytest

from fairway.cli.completion import main, options_of, words
from fairway.cli.verbs import VERBS


def test_verbs_options_kinds_and_clients_are_completed():
    assert words(["de"]) == ["delete", "describe"]
    assert set(words([""])) == set(VERBS)
    assert words(["help", "ca"]) == ["call"]
    assert words(["up", "--de"]) == ["--detach"]
    assert words(["up", "--fi"]) == ["--file"]
    assert "mcpservers" in words(["get", "mcp"])
    assert words(["connect", "cl"]) == ["claude"]
    assert words(["nonsense", ""]) == []


def test_names_are_those_of_the_running_up(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert words(["describe", ""]) == []
    (tmp_path / ".fairway").mkdir()
    servers = {"servers": {"default/hello": {}, "other/clock": {}}}
    (tmp_path / ".fairway" / "servers.json").write_text(json.dumps(servers))
    assert words(["describe", ""]) == ["hello", "other/clock"]
    assert words(["connect", "claude", "h"]) == ["hello"]


@pytest.mark.parametrize("verb", sorted(VERBS))
def test_the_options_of_every_verb_are_those_of_its_help(verb, capsys):
    if not VERBS[verb].module.startswith("fairway.cli.") or verb in ("tools", "version", "completion"):
        return
    from importlib import import_module

    import_module(VERBS[verb].module).main(["--help"])
    shown = capsys.readouterr().out
    found = set(options_of(verb))
    assert len(found) > 1 or verb == "crds"
    assert all(option in shown for option in found)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_can_read_its_script(shell, capsys):
    assert main([shell]) == 0
    script = capsys.readouterr().out
    assert "fairway completion words --" in script
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=script, text=True, check=True)


def test_another_shell_is_refused(capsys):
    assert main(["tcsh"]) == 2
    assert "expected one of bash" in capsys.readouterr().err

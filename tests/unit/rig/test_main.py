import os
import subprocess
import sys
from pathlib import Path

import pytest

from rig.__main__ import main
from rig.state import REPOSITORY, State, new_settings


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RIG_STATE", str(tmp_path / "rig"))
    monkeypatch.delenv("RIG_BIN", raising=False)


def test_help_says_how_to_begin(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["--help"])
    assert left.value.code == 0
    said = capsys.readouterr().out
    assert "python -m rig up --node" in said
    assert "RIG_STATE" in said


def test_no_rig_is_status_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status"]) == 1
    assert "no rig is running" in capsys.readouterr().out


def test_no_rig_has_no_environment(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["env"]) == 2
    assert "fix: python -m rig up" in capsys.readouterr().err


def test_taking_down_what_is_not_there_is_done(tmp_path: Path) -> None:
    assert main(["down"]) == 0
    assert main(["down", "--wipe"]) == 0
    assert not (tmp_path / "rig").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["up", "--crds", "/nonexistent"], "--crds /nonexistent"),
        (["image", "load", "/nonexistent"], "rig up --node"),
        (["up", "--apiserver-option", "not-an-option"], "--apiserver-option"),
    ],
)
def test_a_mistake_is_named_and_no_traceback(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert error.startswith("rig: ")
    assert said in error


def test_binaries_that_are_not_complete_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RIG_BIN", str(tmp_path))
    assert main(["up"]) == 2
    assert "RIG_BIN" in capsys.readouterr().err


def test_what_env_prints_a_shell_can_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = tmp_path / "it's a place"
    monkeypatch.setenv("RIG_STATE", str(directory))
    state = State(root=directory)
    state.remember(new_settings(taken=[]))
    state.kubeconfig.write_text("")
    printed = subprocess.run(
        [sys.executable, "-m", "rig", "env"], cwd=REPOSITORY, capture_output=True, text=True, check=True
    ).stdout
    shown = subprocess.run(
        ["sh", "-c", printed + 'echo "$KUBECONFIG"; echo "$PATH"'],
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": os.environ["PATH"]},
    ).stdout.splitlines()
    assert shown[0] == str(state.kubeconfig)
    assert shown[1].split(":")[0] == str(state.bin)

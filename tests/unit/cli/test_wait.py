"""What `fairway wait --for` means."""

import pytest

from fairway.cli.mistake import Mistake
from fairway.cli.wait import _instead, _meaning_of


def server(*, generation=1, seen=1, phase="Ready", **conditions):
    listed = [{"type": t, "status": s, "reason": "Because", "message": "so"} for t, s in conditions.items()]
    return {
        "metadata": {"generation": generation},
        "status": {"observedGeneration": seen, "phase": phase, "conditions": listed},
    }


@pytest.mark.parametrize("what", ["Ready", "ready", "condition=Ready", "Ready=True", "Ready=true", "phase=Ready"])
def test_a_ready_server_is_ready_in_every_spelling(what):
    holds = _meaning_of(what)
    assert holds(server(Ready="True"))
    assert not holds(None)
    assert not holds(server(generation=2, Ready="True")), "observed of an older generation"
    assert not holds({"metadata": {"generation": 1}})


def test_a_condition_can_be_wanted_false():
    assert _meaning_of("Degraded=False")(server(Degraded="False"))
    assert not _meaning_of("Degraded=False")(server())


def test_delete_holds_once_it_is_gone():
    assert _meaning_of("delete")(None)
    assert not _meaning_of("delete")(server())


@pytest.mark.parametrize("what", ["", "Ready=perhaps", "=True"])
def test_what_means_nothing_is_refused(what):
    with pytest.raises(Mistake, match="expected a condition"):
        _meaning_of(what)


@pytest.mark.parametrize(
    ("obj", "said"),
    [
        (None, "does not exist"),
        ({"metadata": {}}, "does an operator run"),
        (server(generation=2, Ready="True"), "not seen its newest"),
        (server(Ready="False"), "Ready=False Because so"),
    ],
)
def test_what_is_instead_is_said(obj, said):
    assert said in _instead(obj)

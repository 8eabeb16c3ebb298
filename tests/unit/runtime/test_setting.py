"""Settings: the texts that people write, and what is said of those that mean nothing."""

from typing import Any

import pytest

from fairway.runtime import setting
from fairway.runtime.endpoints import Address
from fairway.runtime.setting import RUNTIME_SETTINGS, Setting


@pytest.mark.parametrize(
    ("of", "text", "value"),
    [
        (setting.METRICS, ":9090", Address("", 9090)),
        (setting.METRICS, "[::1]:0", Address("::1", 0)),
        (setting.PROBES, "0", None),
        (setting.LEADER_ELECT, "True", True),
        (setting.LEADER_ELECT, "off", False),
        (setting.NAMESPACES, "", ()),
        (setting.NAMESPACES, "a, b,,a", ("a", "b")),
        (setting.SELECTOR, "shard in (a, b),!frozen", "shard in (a, b),!frozen"),
        (setting.LOG_LEVEL, "warning", "warning"),
        (setting.WORKERS, "1", 1),
        (setting.BASE_DELAY, "1.5s", 1.5),
        (setting.MAX_DELAY, "1h30m", 5400.0),
        (setting.BASE_DELAY, "250ms", 0.25),
        (setting.RESYNC, "0", 0.0),
        (setting.QPS, "12.5", 12.5),
        (setting.BURST, "200", 200),
    ],
    ids=lambda value: value.name if isinstance(value, Setting) else str(value),
)
def test_good_texts_are_read(of: Setting[Any], text: str, value: object) -> None:
    assert of.read(text) == value


@pytest.mark.parametrize(
    ("of", "text", "says"),
    [
        (setting.METRICS, "8080", "write host:port"),
        (setting.METRICS, ":http", "write host:port"),
        (setting.PROBES, ":65536", "write host:port"),
        (setting.LEADER_ELECT, "maybe", "neither true nor false"),
        (setting.NAMESPACES, "a,B", "'B' can be the name of none"),
        (setting.NAMESPACES, "*", "can be the name of none"),
        (setting.SELECTOR, "a=b=c", "no label selector"),
        (setting.LOG_LEVEL, "loud", "not one of debug, info, warning, error"),
        (setting.WORKERS, "0", "at least 1"),
        (setting.WORKERS, "2.5", "at least 1"),
        (setting.WORKERS, "many", "at least 1"),
        (setting.BASE_DELAY, "5", "write 5ms, 30s or 1h30m"),
        (setting.BASE_DELAY, "0", "no time"),
        (setting.MAX_DELAY, "-5s", "no time"),
        (setting.MAX_DELAY, "5 m", "no time"),
        (setting.RESYNC, "never", "or 0 for none"),
        (setting.QPS, "-1", "0 for no limit"),
        (setting.QPS, "nan", "0 for no limit"),
        (setting.QPS, "inf", "0 for no limit"),
        (setting.BURST, "0", "at least 1"),
    ],
    ids=lambda value: value.name if isinstance(value, Setting) else str(value),
)
def test_bad_texts_say_what_is_expected(of: Setting[Any], text: str, says: str) -> None:
    with pytest.raises(ValueError) as raised:
        of.read(text)
    assert says in str(raised.value)
    assert "\n" not in str(raised.value)


def test_every_default_can_be_read_and_every_name_is_there_once() -> None:
    for one in RUNTIME_SETTINGS:
        one.read(one.default)
    names = [one.name for one in RUNTIME_SETTINGS]
    assert len(set(names)) == len(names)


def test_the_variable_is_the_name_in_capitals() -> None:
    assert setting.QPS.variable("FAIRWAY") == "FAIRWAY_KUBE_API_QPS"

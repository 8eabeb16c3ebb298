"""Host and Origin: who may talk to the proxy from a browser."""

from pathlib import Path

import pytest
import yaml

from fairway.proxy.edge import Allowed, Denied, host_name, is_loopback, judge

CASES = yaml.safe_load((Path(__file__).parent / "data" / "origins.yaml").read_text())


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_only_who_cannot_be_a_stranger_in_the_users_browser_may_pass(case):
    verdict = judge(host=case["host"], origin=case.get("origin"), loopback=case.get("loopback", False))
    if case["allowed"]:
        assert verdict == Allowed(keep_origin=case.get("keep", False))
    else:
        assert isinstance(verdict, Denied)
        assert verdict.reason


@pytest.mark.parametrize("name", ["localhost", "app.localhost", "127.0.0.1", "127.9.8.7", "::1"])
def test_names_that_only_mean_this_machine(name):
    assert is_loopback(name)


@pytest.mark.parametrize("name", ["localhost.example.com", "0.0.0.0", "10.0.0.1", "127.1", "2130706433", "::"])
def test_names_that_can_mean_another_machine(name):
    assert not is_loopback(name)


def test_a_host_name_has_neither_port_nor_brackets():
    assert host_name("[::1]:80") == "::1"
    assert host_name("A.Example.com:80") == "a.example.com"

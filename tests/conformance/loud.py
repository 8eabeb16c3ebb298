"""Lines that a test run shows whatever it captures."""

import os
import sys
from typing import NoReturn

import pytest


def say(config: pytest.Config, line: str, **markup: bool) -> None:
    capturing = config.pluginmanager.getplugin("capturemanager")
    reporter = config.pluginmanager.getplugin("terminalreporter")
    if capturing is None:
        return
    with capturing.global_and_fixture_disabled():
        if reporter is not None:
            reporter.write_line(f"\n{line}", **markup)
        else:  # one of several processes that share the tests has no other way to the screen
            print(f"\n{line}", file=sys.stderr, flush=True)


def untested(config: pytest.Config, said: str) -> NoReturn:
    """Skips with one loud line; fails where everything has to be tested."""
    line = f"UNTESTED: {said}"
    if os.environ.get("FAIRWAY_REQUIRE_CLUSTER") == "1":
        pytest.fail(f"FAIRWAY_REQUIRE_CLUSTER=1, but {line}", pytrace=False)
    say(config, line, yellow=True, bold=True)
    pytest.skip(line)

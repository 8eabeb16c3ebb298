"""One loud line about what could not be tested here; a failure where everything has to be."""

import os
from typing import NoReturn

import pytest


def untested(config: pytest.Config, said: str) -> NoReturn:
    line = f"UNTESTED: {said}"
    if os.environ.get("FAIRWAY_REQUIRE_CLUSTER") == "1":
        pytest.fail(f"FAIRWAY_REQUIRE_CLUSTER=1, but {line}", pytrace=False)
    capturing = config.pluginmanager.getplugin("capturemanager")
    reporter = config.pluginmanager.getplugin("terminalreporter")
    if capturing is not None and reporter is not None:
        with capturing.global_and_fixture_disabled():
            reporter.write_line(f"\n{line}", yellow=True, bold=True)
    pytest.skip(line)

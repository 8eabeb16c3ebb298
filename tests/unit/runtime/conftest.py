"""Fixtures of the runtime's unit tests."""

import pytest


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"

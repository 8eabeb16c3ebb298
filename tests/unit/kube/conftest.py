"""Fixtures of the client's unit tests."""

import pytest


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"

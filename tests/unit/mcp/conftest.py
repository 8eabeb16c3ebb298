"""Asynchronous tests run on asyncio, as everything here does."""

import pytest


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"

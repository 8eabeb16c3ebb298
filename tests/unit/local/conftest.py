"""Asyncio only: local mode runs on nothing else."""

import pytest


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"

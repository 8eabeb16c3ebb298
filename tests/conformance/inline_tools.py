"""What plain functions can offer of the tools that the suite looks for."""

from typing import Annotated

from pydantic import Field

__all__ = ["test_error_handling", "test_logging_tool", "test_simple_text", "test_x_mcp_header"]


def test_simple_text() -> str:
    """Says one sentence."""
    return "This is a simple text response for testing."


def test_error_handling() -> None:
    """Fails."""
    raise RuntimeError("This tool intentionally returns an error for testing")


def test_x_mcp_header(region: Annotated[str, Field(json_schema_extra={"x-mcp-header": "Region"})]) -> str:
    """Wants its region in a header too."""
    return region


def test_logging_tool() -> str:
    """Logs nothing, since nobody asked for it."""
    return "quiet"

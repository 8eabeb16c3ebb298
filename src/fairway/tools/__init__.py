"""The inline-tools server: a file of plain Python functions, served as MCP tools."""

"""Packages that are MCP servers: fetched from an index in one exact version, found and started without a shell."""

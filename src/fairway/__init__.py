"""MCP servers and AI agents on Kubernetes, and the same manifests on a laptop without it."""

__version__ = "0.1.0"

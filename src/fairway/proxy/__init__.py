"""The data plane: what stands between clients and MCP servers, and enforces what the control plane decided."""

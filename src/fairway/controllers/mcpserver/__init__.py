"""The MCPServer controller: inputs -> desired -> apply -> status."""

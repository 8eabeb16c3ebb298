"""The MCPToolConfig controller: says whether a configuration is valid and who uses it."""

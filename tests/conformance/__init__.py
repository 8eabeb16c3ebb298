"""The official conformance suite, and a server that has everything it asks for."""

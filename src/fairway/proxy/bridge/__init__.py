"""Servers that read and write lines, served over HTTP in both eras."""

"""The Model Context Protocol: its words in both eras, and a client that shakes hands, lists and calls."""

"""Code blocks of the documentation, found and run."""

"""The step that fetches a package for Node, for images that have Node and nothing of ours."""

from importlib.resources import files

SCRIPT = (files("fairway.packages") / "fetch.js").read_text()
"""For `node -e SCRIPT -- DIRECTORY NAME VERSION [PROGRAM]`: leaves DIRECTORY/run."""

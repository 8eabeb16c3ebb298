"""Configuration files, written only when they differ: kube-proxy ends itself when its file is touched."""

import os
from pathlib import Path


def write_changed(path: Path, text: str, *, mode: int = 0o644) -> bool:
    """Make the file hold that text, whole at every instant. True if it did not before."""
    try:
        if path.read_text() == text and path.stat().st_mode & 0o777 == mode:
            return False
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(path.name + ".new")
    draft.unlink(missing_ok=True)
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w") as file:
        file.write(text)
    draft.chmod(mode)
    draft.replace(path)
    return True

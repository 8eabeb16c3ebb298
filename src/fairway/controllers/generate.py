"""Writes the install manifest: what `fairway install` applies, for those who apply files themselves."""

import argparse
import sys
from pathlib import Path

from fairway.api import crd
from fairway.controllers import install
from fairway.controllers.operator import DEFAULT_IMAGE

PATH = "deploy/install.yaml"
HEADER = "# Generated from src/fairway/controllers/install.py by `make generate`. Do not edit.\n"


def generated(*, image: str = DEFAULT_IMAGE) -> str:
    return HEADER + crd.to_yaml(*install.objects(image=image))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m fairway.controllers.generate", description=__doc__)
    parser.add_argument("--root", type=Path, default=Path(), help="the repository (default: this directory)")
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 if it is out of date")
    arguments = parser.parse_args()
    path, content = arguments.root / PATH, generated()
    if path.exists() and path.read_text() == content:
        return 0
    print("out of date" if arguments.check else "written", PATH)  # noqa: T201
    if not arguments.check:
        path.write_text(content)
    return 1 if arguments.check else 0


if __name__ == "__main__":
    sys.exit(main())

"""Writes the install manifest: what `fairway install` applies, for those who apply files themselves."""

import sys

from fairway.api import crd
from fairway.api.generate import write
from fairway.controllers import install
from fairway.controllers.operator import DEFAULT_IMAGE

PATH = "deploy/install.yaml"
HEADER = "# Generated from src/fairway/controllers/install.py by `make generate`. Do not edit.\n"


def generated(*, image: str = DEFAULT_IMAGE) -> str:
    return HEADER + crd.to_yaml(*install.objects(image=image))


def main() -> int:
    return write(lambda _: {PATH: generated()}, program="fairway.controllers.generate", about=__doc__)


if __name__ == "__main__":
    sys.exit(main())

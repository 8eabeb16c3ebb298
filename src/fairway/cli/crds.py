"""`fairway crds`: the CustomResourceDefinitions, ready for kubectl."""

import sys

from fairway.api import crd
from fairway.cli import typed


def main(arguments: list[str]) -> int:
    return typed.run(crds, arguments, verb="crds")


def crds() -> int:
    """Prints the CustomResourceDefinitions of this version: fairway crds | kubectl apply --server-side -f -"""
    sys.stdout.write(crd.to_yaml(*crd.crds().values()))
    return 0

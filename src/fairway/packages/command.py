"""`fairway package`: fetch a package for a server, or become the server that it is."""

import argparse
import fcntl
import hashlib
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from fairway.packages.npm import NodePackage
from fairway.packages.python import CannotFetch, PythonPackage


def main(arguments: Sequence[str] | None = None) -> int:
    """0 done, 1 the package cannot be had or has no such program, 2 a mistake in the arguments."""
    given = _parser().parse_args(arguments)
    package = NodePackage(given.npm, given.version) if given.npm else PythonPackage(given.pypi, given.version)
    try:
        if given.verb == "fetch":
            package.fetch(given.into, program=given.program, environ=os.environ)
            return 0
        place = kept(package, given.cache, program=given.program, environ=os.environ)
        _become(package, place, given.arguments, os.environ)
    except CannotFetch as error:
        print(error, file=sys.stderr)  # noqa: T201
    except OSError as error:
        print(f"package {package.name}: {error.filename}: {error.strerror}", file=sys.stderr)  # noqa: T201
    return 1


def kept(package: PythonPackage | NodePackage, cache: Path, *, program: str | None, environ: Mapping[str, str]) -> Path:
    """The directory with the package in it, fetched only if it was not there."""
    parts = (type(package).__name__, package.name, package.version, program or "", sys.prefix, sys.version)
    place = cache / hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
    place.mkdir(parents=True, exist_ok=True)
    with (place / "lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)  # two servers may want the same package
        if not (place / "run").exists():
            package.fetch(place, program=program, environ=environ)
    return place


def _become(
    package: PythonPackage | NodePackage, place: Path, arguments: Sequence[str], environ: Mapping[str, str]
) -> NoReturn:
    argv = [*package.interpreter, str(place / "run"), *arguments]
    os.execvpe(argv[0], argv, dict(environ))  # noqa: S606  no shell, as it should be


class _Parser(argparse.ArgumentParser):
    """One line for a mistake, as everywhere in this program."""

    def error(self, message: str) -> NoReturn:
        sys.stderr.write(f"{self.prog}: {message}; {self.prog} --help says more\n")
        raise SystemExit(2)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="fairway package", description="Servers that are packages.", allow_abbrev=False)
    verbs = parser.add_subparsers(dest="verb", required=True)
    fetch = verbs.add_parser("fetch", help="leave the package in a directory, and its program as DIRECTORY/run")
    fetch.add_argument("--into", type=Path, metavar="DIRECTORY", required=True)
    run = verbs.add_parser("run", help="fetch the package unless it is there, and become its program")
    run.add_argument("--cache", type=Path, metavar="DIRECTORY", required=True)
    for verb in (fetch, run):
        source = verb.add_mutually_exclusive_group(required=True)
        source.add_argument("--pypi", metavar="NAME", help="a Python package")
        source.add_argument("--npm", metavar="NAME", help="a package for Node")
        verb.add_argument("--version", metavar="VERSION", required=True)
        verb.add_argument("--program", metavar="NAME", help="default: the one that is called like the package")
    run.add_argument("arguments", nargs="*", metavar="ARGUMENT", help="of the program, after --")
    return parser

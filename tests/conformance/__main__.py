"""`python -m tests.conformance`: what the suite says of a server, and what changes when a proxy stands before it."""

import argparse
import json
import sys
from contextlib import ExitStack

from tests.conformance.packages import UnavailableError, package
from tests.conformance.running import NotStartedError, fairway_proxy, fixture_server
from tests.conformance.suite import (
    BASELINE,
    REVISIONS,
    SuiteError,
    accepted_differences,
    differences,
    run_suite,
    summary,
)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance", description=__doc__)
    parser.add_argument("--direct", metavar="URL", help="the server itself (default: the fixture server)")
    parser.add_argument(
        "--through", metavar="URL", help="the same server behind a proxy (default: behind fairway proxy)"
    )
    parser.add_argument("--revision", action="append", choices=REVISIONS, help="default: both")
    parser.add_argument("--write-baseline", action="store_true", help="only score the server, and remember it")
    given = parser.parse_args(arguments)
    if given.through and not given.direct:
        parser.error("--through needs --direct")
    try:
        return compare(given)
    except UnavailableError as error:
        print(f"UNTESTED: conformance: {error}", file=sys.stderr)
        return 2
    except (NotStartedError, SuiteError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def compare(given: argparse.Namespace) -> int:
    installed = package("conformance")
    revisions = given.revision or REVISIONS
    with ExitStack() as stack:
        direct = given.direct or stack.enter_context(fixture_server())
        if given.write_baseline:
            scores = {revision: summary(run_suite(installed, direct, revision)) for revision in revisions}
            BASELINE.write_text(json.dumps(scores, indent=2) + "\n")
            return 0
        through = given.through or stack.enter_context(fairway_proxy(direct))
        found = []
        for revision in revisions:
            scores = [run_suite(installed, url, revision) for url in (direct, through)]
            print(f"{revision}   passed/failed   direct {scores[0]}   through the proxy {scores[1]}", flush=True)
            found += differences(*scores, accepted_differences())
    for difference in found:
        print(f"  {difference}")
    print("identical" if not found else f"{len(found)} checks differ")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

"""Every example that can run on one machine, run there: ready, listed in both eras, its call answered as promised."""

import re
from pathlib import Path

import pytest

from handbook.examples import EXAMPLE_CALL, examples
from tests.e2e.laptop import EXAMPLES, Laptop

pytestmark = pytest.mark.e2e


def test_all_of_them_at_once(tmp_path: Path):
    chosen = [e for e in examples(EXAMPLES) if not e.cluster_only and e.path.parts[0] != "quickstart"]
    laptop = Laptop(tmp_path)
    files = [word for e in chosen for word in ("-f", str(EXAMPLES / e.path))]
    checked = laptop.run("up", *files, "--check", "--timeout", "150", "--port-base", str(laptop.base), timeout=240)
    assert checked.returncode == 0, (
        "\n".join(line for line in checked.stdout.splitlines() if not line.startswith("ok")) + checked.stderr
    )
    answered = set(re.findall(r"^ok    (\S+)  2026-07-28 \w+\(.*\) = ", checked.stdout, re.MULTILINE))
    wanted = {s["metadata"]["name"] for e in chosen for s in e.servers if EXAMPLE_CALL in s["metadata"]["annotations"]}
    assert answered == wanted
    assert len(wanted) > 20

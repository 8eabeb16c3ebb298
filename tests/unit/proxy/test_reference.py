"""The page about the proxy says what the code does."""

import re
from pathlib import Path

import pytest

from fairway.proxy import downstream, endpoints, listener, lists, main, reader

PAGE = (Path(__file__).parents[3] / "docs" / "proxy.md").read_text()
ROWS = dict(re.findall(r"^\| ([a-z][^|]*?) \| ([^|]*?) \|$", PAGE, re.MULTILINE))


@pytest.mark.parametrize(
    ("row", "numbers"),
    [
        ("head of a request", [reader.MAX_HEAD >> 10, reader.MAX_HEADERS, downstream.HEAD_TIMEOUT]),
        ("body of a request", [downstream.BODY_STALL]),
        ("a whole request", [downstream.MESSAGE_TIMEOUT]),
        ("requests ahead on one connection", [downstream.MAX_QUEUED]),
        ("large bodies of all clients together", [listener.MIN_BUDGET >> 20]),
        ("connections to one address", [listener.MAX_CONNECTIONS]),
        ("a list that is rewritten", [lists.MAX_LIST >> 20]),
        ("a connection to a server", [downstream.CONNECT_ATTEMPTS]),
        ("an idle connection to a server", [endpoints.MAX_UPSTREAM_IDLE]),
    ],
)
def test_the_limits_are_those_of_the_code(row, numbers):
    assert [float(number) for number in re.findall(r"\d+", ROWS[row])] == numbers


def test_the_end_takes_as_long_as_it_says():
    said = re.search(r"`--pre-stop` seconds \((\d+) in a pod\).*`--grace` seconds \((\d+)\)", PAGE, re.DOTALL)
    assert said is not None
    assert [float(number) for number in said.groups()] == [main.PRE_STOP, main.GRACE]


def test_every_status_that_the_proxy_answers_with_is_there():
    code = "".join(path.read_text() for path in Path(reader.__file__).parent.rglob("*.py"))
    answered = set(re.findall(r"Refusal\(\s*(\d{3})\b", code)) | set(re.findall(r"status=(4\d\d)\b", code))
    rows = [row.split("|")[1] for row in PAGE.splitlines() if re.match(r"\| [45]\d\d", row)]
    assert answered - {"200"} <= {status for row in rows for status in re.findall(r"\d{3}", row)}

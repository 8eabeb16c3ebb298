"""Which server a person means."""

import json

import pytest

from fairway.cli.servers import UnknownServer, url_of

SERVERS = {
    "default/hello": {"url": "http://127.0.0.1:7001/mcp", "ready": True},
    "tools/clock": {"url": "http://127.0.0.1:7002/mcp"},
    "default/early": {"url": "", "message": "it waits"},
}


@pytest.fixture
def state(tmp_path):
    (tmp_path / "servers.json").write_text(json.dumps({"servers": SERVERS}))
    return tmp_path


@pytest.mark.parametrize(
    ("server", "url"),
    [
        ("hello", "http://127.0.0.1:7001/mcp"),
        ("default/hello", "http://127.0.0.1:7001/mcp"),
        ("tools/clock", "http://127.0.0.1:7002/mcp"),
        ("https://example.com/mcp", "https://example.com/mcp"),
    ],
)
def test_a_name_or_a_url_is_found(state, server, url):
    assert url_of(server, state) == url


@pytest.mark.parametrize(
    ("server", "said"),
    [
        ("helo", "there is no server 'helo' here; did you mean hello?"),
        ("zzz", "there are early, hello, tools/clock"),
        ("clock", "there is no server 'clock' here; did you mean tools/clock?"),
        ("early", "early is not reachable yet: it waits"),
    ],
)
def test_a_name_that_leads_nowhere_says_what_there_is(state, server, said):
    with pytest.raises(UnknownServer) as unknown:
        url_of(server, state)
    assert said in str(unknown.value)


@pytest.mark.parametrize("content", [None, "{", "[]", "{}", '{"servers": 1}'])
def test_without_a_running_up_it_says_so(tmp_path, content):
    if content is not None:
        (tmp_path / "servers.json").write_text(content)
    with pytest.raises(UnknownServer, match=r"servers\.json"):
        url_of("hello", tmp_path)

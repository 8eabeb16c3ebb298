"""What is written into the settings of MCP clients."""

import json
import tomllib
from pathlib import Path

import pytest
import yaml

from fairway.cli.clients import CLIENTS, Entry, Places, client_named
from fairway.cli.clients.jsonc import loads
from fairway.cli.clients.tables import NotToml, with_table
from fairway.cli.clients.yamlmap import NotYaml, with_entry
from fairway.cli.mistake import Mistake

URL = "http://127.0.0.1:7001/mcp"
PLAIN = Entry("hello", URL)
WITH_TOKEN = Entry("hello", URL, token_variable="TOKEN")
WITH_CLIENT = Entry("hello", URL, client_id="fairway-cli")

PLAIN_SHAPE = {
    "claude": {"mcpServers": {"hello": {"type": "http", "url": URL}}},
    "cursor": {"mcpServers": {"hello": {"url": URL}}},
    "vscode": {"servers": {"hello": {"type": "http", "url": URL}}},
    "windsurf": {"mcpServers": {"hello": {"serverUrl": URL}}},
    "zed": {"context_servers": {"hello": {"url": URL}}},
    "gemini": {"mcpServers": {"hello": {"httpUrl": URL}}},
    "goose": {
        "extensions": {
            "hello": {"enabled": True, "type": "streamable_http", "name": "hello", "uri": URL, "timeout": 300}
        }
    },
    "codex": {"mcp_servers": {"hello": {"url": URL}}},
}
TOKEN_REFERENCE = {
    "claude": "Bearer ${TOKEN}",
    "cursor": "Bearer ${env:TOKEN}",
    "vscode": "Bearer ${env:TOKEN}",
    "windsurf": "Bearer ${env:TOKEN}",
    "gemini": "Bearer $TOKEN",
    "goose": "Bearer $TOKEN",
}
CLIENT_ID = {
    "claude": {"oauth": {"clientId": "fairway-cli"}},
    "cursor": {"auth": {"CLIENT_ID": "fairway-cli"}},
    "vscode": {"oauth": {"clientId": "fairway-cli"}},
    "gemini": {"oauth": {"enabled": True, "clientId": "fairway-cli"}},
    "codex": {"oauth": {"client_id": "fairway-cli"}},
}
EXISTING = {
    "codex": '# mine\nmodel = "x"\n\n[mcp_servers.other]\ncommand = "a" # kept\n\n[tui]\ntheme = "dark"\n',
    "goose": "# mine\nGOOSE_MODEL: x\nextensions:\n  # kept\n  developer:\n    enabled: true\n\nGOOSE_MODE: auto\n",
}


def parsed(name, text):
    return {"codex": tomllib.loads, "goose": yaml.safe_load}.get(name, loads)(text)


def entry_in(name, text):
    (servers,) = (value for value in parsed(name, text).values() if isinstance(value, dict) and "hello" in value)
    return servers["hello"]


@pytest.mark.parametrize("client", CLIENTS, ids=lambda c: c.name)
def test_an_empty_file_gets_the_clients_own_shape(client):
    text = client.edit("", PLAIN)
    assert parsed(client.name, text) == PLAIN_SHAPE[client.name]
    assert text.endswith("\n")


@pytest.mark.parametrize("client", CLIENTS, ids=lambda c: c.name)
def test_a_second_time_changes_nothing_and_another_url_replaces_the_entry(client):
    once = client.edit(EXISTING.get(client.name, '{\n  // mine\n  "a": {"b": 1}\n}\n'), PLAIN)
    assert client.edit(once, PLAIN) == once
    moved = client.edit(once, Entry("hello", "http://127.0.0.1:7009/mcp"))
    assert "7009" in moved
    assert "7001" not in moved
    assert client.edit(moved, PLAIN) == once


@pytest.mark.parametrize("client", CLIENTS, ids=lambda c: c.name)
def test_everything_else_in_the_file_stays_comments_too(client):
    before = EXISTING.get(client.name, '{\n  // mine\n  "mcpServers": {"other": {"url": "x"}},\n  "z": [1]\n}\n')
    after = client.edit(before, PLAIN)
    assert all(line.rstrip("},") in after for line in before.splitlines())
    held, now = parsed(client.name, before), parsed(client.name, after)
    for key, value in held.items():
        assert now[key] == value or {k: v for k, v in now[key].items() if k != "hello"} == value


@pytest.mark.parametrize("client", [c for c in CLIENTS if c.takes_token], ids=lambda c: c.name)
def test_a_token_is_named_by_its_variable_and_never_written(client):
    entry = entry_in(client.name, client.edit("", WITH_TOKEN))
    if client.name == "codex":
        assert entry["bearer_token_env_var"] == "TOKEN"
    else:
        assert entry["headers"] == {"Authorization": TOKEN_REFERENCE[client.name]}


@pytest.mark.parametrize("client", [c for c in CLIENTS if c.takes_client_id], ids=lambda c: c.name)
def test_a_client_id_goes_where_the_client_looks_for_it(client):
    assert CLIENT_ID[client.name].items() <= entry_in(client.name, client.edit("", WITH_CLIENT)).items()


@pytest.mark.parametrize("client", CLIENTS, ids=lambda c: c.name)
def test_what_a_client_has_no_setting_for_is_refused_in_words(client):
    if not client.takes_client_id:
        with pytest.raises(Mistake, match="no setting for a client id"):
            client.edit("", WITH_CLIENT)
    if not client.takes_token:
        with pytest.raises(Mistake, match="cannot take a token"):
            client.edit("", WITH_TOKEN)


def test_files_are_below_the_home_or_the_folder():
    places = Places(home=Path("/home/me"), here=Path("/project"), macos=False)
    files = {client.name: str(client.file(places)) for client in CLIENTS}
    assert files["claude"] == "/project/.mcp.json"
    assert files["vscode"] == "/project/.vscode/mcp.json"
    assert all(path.startswith(("/home/me/.", "/project/.")) for path in files.values())


def test_clients_are_found_by_their_names_and_a_wrong_one_gets_the_nearest():
    assert client_named("Claude-Code").name == "claude"
    with pytest.raises(Mistake, match="did you mean cursor"):
        client_named("cursr")
    with pytest.raises(Mistake, match="there are claude, cursor"):
        client_named("xxxx")


@pytest.mark.parametrize("name", ["", "a b", "a.b", 'a"', "x" * 65])
def test_a_name_that_some_client_would_trip_over_is_refused(name):
    with pytest.raises(Mistake, match="--name"):
        Entry(name, URL)


def test_a_variable_is_a_name_and_not_the_token_itself():
    with pytest.raises(Mistake, match="no name of a variable"):
        Entry("hello", URL, token_variable="eyJhbGciOi.x")


@pytest.mark.parametrize("text", ["x = [", 'mcp_servers = {hello = {url = "x"}}', 'mcp_servers.hello.url = "x"'])
def test_toml_that_cannot_be_edited_line_by_line_is_left_alone(text):
    with pytest.raises(NotToml):
        with_table(text, ("mcp_servers", "hello"), {"url": URL})


def test_toml_subtables_of_the_entry_go_with_it():
    before = '[mcp_servers.hello]\nurl = "x"\n[mcp_servers.hello.env]\nA = "b"\n[other]\nc = 1\n'
    after = with_table(before, ("mcp_servers", "hello"), {"url": URL})
    assert tomllib.loads(after) == {"mcp_servers": {"hello": {"url": URL}}, "other": {"c": 1}}


@pytest.mark.parametrize("text", ["a: [", "- a", "extensions: {developer: {enabled: true}}"])
def test_yaml_that_cannot_be_edited_line_by_line_is_left_alone(text):
    with pytest.raises(NotYaml):
        with_entry(text, ("extensions", "hello"), {"uri": URL})


@pytest.mark.parametrize("text", ["", "extensions:\n", "extensions: {}\n", "a: 1", "a: 1\nextensions:\nb: 2\n"])
def test_yaml_without_an_entry_gets_one(text):
    after = yaml.safe_load(with_entry(text, ("extensions", "hello"), {"uri": URL}))
    assert after == {**(yaml.safe_load(text) or {}), "extensions": {"hello": {"uri": URL}}}


def test_json_is_never_rewritten_as_a_whole():
    before = json.dumps({"a": [1, 2, {"b": None}], "mcpServers": {}}, separators=(",", ":"))
    assert '"a":[1,2,{"b":null}]' in client_named("cursor").edit(before, PLAIN)

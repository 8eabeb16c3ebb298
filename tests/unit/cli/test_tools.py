"""`fairway tools`: its options and what stands in for them."""

import pytest

from fairway.cli.tools import parser


def given(*arguments, **environment):
    return parser(environment).parse_args(["--file", "t.py", *arguments])


def test_by_hand_it_listens_on_this_machine_only():
    assert (given().host, given().port, given().path) == ("127.0.0.1", 8080, "/mcp")


def test_a_pods_environment_stands_in_for_the_options():
    options = given(MCP_HOST="0.0.0.0", MCP_PORT="3001")
    assert (options.host, options.port) == ("0.0.0.0", 3001)


def test_options_win_over_the_environment():
    options = given("--host", "::1", "--port", "0", MCP_HOST="0.0.0.0", MCP_PORT="3001")
    assert (options.host, options.port) == ("::1", 0)


@pytest.mark.parametrize("port", ["-1", "65536", "x", "8080.5"])
@pytest.mark.parametrize("source", ["option", "environment"])
def test_what_is_no_port_is_refused(port, source, capsys):
    with pytest.raises(SystemExit) as ended:
        given(f"--port={port}") if source == "option" else given(MCP_PORT=port)
    assert ended.value.code == 2
    assert f"'{port}' is no port" in capsys.readouterr().err

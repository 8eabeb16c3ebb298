"""What the program can do: each verb, its line of help, and where it lives."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Verb:
    """`entry` of `module` takes the arguments after the verb and returns the exit code.

    Verbs that run as a server in a cluster live in their own packages and parse their own arguments, so that a pod
    does not pay for what only people at a terminal need.
    """

    module: str
    help: str
    entry: str = "main"


VERBS = {
    "up": Verb("fairway.cli.up", "run manifests on this machine, without a cluster"),
    "call": Verb("fairway.cli.call", "call a tool of a server, or list its tools"),
    "crds": Verb("fairway.cli.crds", "print the CustomResourceDefinitions, for kubectl apply -f -"),
    "install": Verb("fairway.cli.install", "put the operator, its kinds and its rights into a cluster"),
    "operator": Verb("fairway.controllers.operator", "run the operator"),
    "proxy": Verb("fairway.proxy.command", "run the proxy in front of MCP servers"),
    "proxyrunner": Verb("fairway.proxy.command", "run the proxy as its pods do: proxyrunner run", entry="proxyrunner"),
    "tools": Verb("fairway.cli.tools", "serve the functions of a Python file as MCP tools"),
    "version": Verb("fairway.cli.version", "print the version"),
}

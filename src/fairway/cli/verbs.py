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
    "down": Verb("fairway.cli.down", "stop the `fairway up` of this folder"),
    "init": Verb("fairway.cli.init", "write a manifest to begin with"),
    "get": Verb("fairway.cli.get", "list servers, or objects of another kind"),
    "describe": Verb("fairway.cli.describe", "say how an object is, why, and what to do"),
    "logs": Verb("fairway.cli.logs", "print or follow the logs of a server"),
    "plan": Verb("fairway.cli.plan", "show what an apply would change, and what that means"),
    "apply": Verb("fairway.cli.apply", "apply manifests"),
    "delete": Verb("fairway.cli.delete", "delete objects, by manifest or by name"),
    "wait": Verb("fairway.cli.wait", "wait until a condition holds"),
    "call": Verb("fairway.cli.call", "call a tool of a server"),
    "connect": Verb("fairway.cli.connect", "make a server known to an MCP client: Claude Code, Cursor, VS Code, ..."),
    "inspect": Verb("fairway.cli.inspect", "open the MCP Inspector on a server"),
    "doctor": Verb("fairway.cli.doctor", "look for what is wrong here or in a cluster, and say what to do"),
    "generate": Verb("fairway.cli.generate", "print what a manifest becomes, the install manifest, or schemas"),
    "crds": Verb("fairway.cli.crds", "print the CustomResourceDefinitions, for kubectl apply -f -"),
    "install": Verb("fairway.cli.install", "put the operator, its kinds and its rights into a cluster"),
    "uninstall": Verb("fairway.cli.uninstall", "take the operator out of a cluster again"),
    "operator": Verb("fairway.controllers.operator", "run the operator"),
    "proxy": Verb("fairway.proxy.command", "run the proxy in front of MCP servers"),
    "proxyrunner": Verb("fairway.proxy.command", "run the proxy as its pods do: proxyrunner run", entry="proxyrunner"),
    "tools": Verb("fairway.cli.tools", "list the tools of a server, or serve a Python file as MCP tools"),
    "completion": Verb("fairway.cli.completion", "print completions for bash, zsh or fish"),
    "package": Verb("fairway.packages.command", "fetch a package for a server, or become the server that it is"),
    "version": Verb("fairway.cli.version", "print the version"),
}

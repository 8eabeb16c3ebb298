"""The catalogue of named runtimes: a ConfigMap of the operator's, read again whenever it changes. Pure."""

from collections.abc import Mapping
from typing import Annotated, Any, Final

import yaml
from pydantic import Field, ValidationError

from fairway.api.conditions import Reason
from fairway.api.container import Arguments, HttpPath
from fairway.api.mcpserver import MCPServer, MCPServerSpec, Transport
from fairway.api.schema import Model
from fairway.api.source import Image
from fairway.controllers.mcpserver.inputs import Inputs, Missing, first_error
from fairway.controllers.mcpserver.needs import Content, Need

KEY: Final = "runtimes.yaml"

EnvName = Annotated[str, Field(max_length=256, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]


class Runtime(Model):
    """One entry: how a kind of server is run."""

    description: Annotated[str, Field(max_length=4096)] = ""
    """For people."""
    image: Image
    """Container image of the server."""
    command: Arguments | None = None
    """Replaces the entry point of the image."""
    args: Arguments | None = None
    """Arguments; $(MCP_PORT) is the port that a server has to listen on."""
    transport: Transport | None = None
    """How it talks MCP."""
    path: HttpPath | None = None
    """Where on its port."""
    params_env_var: EnvName | None = None
    """The variable that spec.runtime.params goes into."""
    required_env: Annotated[list[EnvName], Field(max_length=64)] = []
    """Variables that its user must set."""


def need(catalogue: str) -> Need:
    """What of the operator's own is read for a server with a named runtime."""
    _, _, name = catalogue.rpartition("/")
    return Need("ConfigMap", name, KEY, False, "spec.runtime", stays=False, read=True)


def namespace_of(catalogue: str) -> str:
    return catalogue.rpartition("/")[0]


def resolved(inputs: Inputs, content: Content | None, *, catalogue: str) -> Inputs | Missing:
    """The server as if its user had written what the catalogue says; the user's own fields win."""
    wanted = inputs.server.spec.runtime
    assert wanted is not None
    where = f"ConfigMap {catalogue}"
    if content is None or KEY not in content.text:
        return Missing(
            Reason.RUNTIME_NOT_FOUND,
            f"spec.runtime: the catalogue of runtimes is key {KEY} of {where}, and there is no such "
            f"{'key' if content is not None else 'ConfigMap'}",
            waiting=True,
        )
    entries = _entries(content.text[KEY])
    if isinstance(entries, str):
        return Missing(Reason.RUNTIME_INVALID, f"{where}, key {KEY}: {entries}")
    if wanted.name not in entries:
        known = ", ".join(sorted(map(str, entries))[:20]) or "none"
        return Missing(
            Reason.RUNTIME_NOT_FOUND,
            f"spec.runtime.name: there is no runtime {wanted.name} in {where}; it has {known}",
            waiting=True,
        )
    try:
        runtime = Runtime.model_validate(entries[wanted.name])
    except ValidationError as error:
        return Missing(Reason.RUNTIME_INVALID, f"{where}, runtime {wanted.name}: {first_error(error)}")
    return _applied(inputs, runtime)


def _entries(text: str) -> Mapping[str, Any] | str:
    """The document, or what is wrong with it."""
    try:
        document = yaml.load(text, Loader=yaml.CSafeLoader)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        return f"not YAML: {' '.join(str(error).split())}"
    return document if isinstance(document, Mapping) else "it has to be a map of names to runtimes"


def _applied(inputs: Inputs, runtime: Runtime) -> Inputs | Missing:
    server, wanted = inputs.server, inputs.server.spec.runtime
    assert wanted is not None
    if wanted.params is not None and runtime.params_env_var is None:
        return Missing(Reason.INVALID_SPEC, f"spec.runtime.params: the runtime {wanted.name} takes none")
    spec = server.spec.model_dump(by_alias=True, exclude_none=True, exclude={"runtime"}, mode="json")
    entry = runtime.model_dump(by_alias=True, exclude_none=True, mode="json")
    taken: dict[str, Any] = {
        field: entry[field] for field in ("image", "command", "args", "transport", "path") if field in entry
    }
    if "command" in spec:
        taken.pop("args", None)  # those are for the runtime's own command
    spec = dict(taken) | spec
    if wanted.params is not None and not any(v.name == runtime.params_env_var for v in server.spec.env):
        spec["env"] = [*spec["env"], {"name": runtime.params_env_var, "value": _literal(wanted.params)}]
    try:
        whole = MCPServer(metadata=server.metadata, spec=MCPServerSpec.model_validate(spec))
    except ValidationError as error:
        return Missing(Reason.INVALID_SPEC, f"spec, with the runtime {wanted.name}: {first_error(error)}")
    return inputs.with_runtime(whole, required_env=tuple(runtime.required_env))


def _literal(text: str) -> str:
    """So that the kubelet puts nothing in place of what looks like a variable."""
    return text.replace("$", "$$")


def unset(inputs: Inputs, names_from: frozenset[str]) -> Missing | None:
    """Which variable the runtime needs and nobody sets; `names_from` come by envFrom."""
    spec = inputs.server.spec
    there = {variable.name for variable in spec.env} | {*(spec.config or {})} | names_from
    absent = [name for name in inputs.required_env if name not in there]
    if not absent:
        return None
    return Missing(
        Reason.INVALID_SPEC,
        f"spec.env: the runtime needs {', '.join(absent)}; set {'it' if len(absent) == 1 else 'them'} "
        "there or by spec.envFrom",
    )

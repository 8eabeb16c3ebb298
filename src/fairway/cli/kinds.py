"""The kinds that a person can name on the command line, and the columns that they are shown with."""

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from difflib import get_close_matches
from typing import Any

from pydantic import ValidationError

from fairway.api.crd import KINDS, Column, Kind
from fairway.api.names import GROUP, VERSION
from fairway.cli.mistake import Mistake
from fairway.kube.resource import Resource

DEFAULT = KINDS[0]
"""What a name without a kind means: a server."""

_STEP = re.compile(r"\.(?P<name>[A-Za-z0-9_-]+)|\[\?\(@\.(?P<key>\w+)==\"(?P<value>[^\"]*)\"\)\]|\[(?P<index>\d+)\]")


def resource_of(kind: Kind) -> Resource:
    return Resource(GROUP, VERSION, kind.kind, kind.plural)


def words_of(kind: Kind) -> tuple[str, ...]:
    return (kind.plural, kind.kind.lower(), *kind.short_names)


def kind_named(text: str) -> Kind:
    """By kind, plural or short name, as kubectl takes them."""
    wanted = text.lower().removesuffix(f".{GROUP}")
    for kind in KINDS:
        if wanted in words_of(kind):
            return kind
    known = [word for kind in KINDS for word in words_of(kind)]
    close = get_close_matches(wanted, known, n=1)
    hint = f"; did you mean {close[0]}?" if close else f"; there are {', '.join(k.plural for k in KINDS)}"
    raise Mistake(f"{text!r} is no kind of {GROUP}{hint}")


def is_kind(text: str) -> bool:
    return any(text.lower().removesuffix(f".{GROUP}") in words_of(kind) for kind in KINDS)


def kind_and_name(text: str) -> tuple[Kind, str]:
    """`weather`, `mcps/weather` or `MCPServer/weather`."""
    kind, slash, name = text.partition("/")
    if not slash:
        return DEFAULT, text
    if not name:
        raise Mistake(f"{text!r}: a name is missing behind the /")
    return kind_named(kind), name


def cell(obj: Mapping[str, Any], column: Column, *, now: datetime) -> str:
    """What a column shows of an object."""
    values = list(_at([obj], column.path)) or list(_at([with_defaults(obj)], column.path))
    if column.type == "date":
        return age(str(values[0]), now=now) if values else ""
    flat = [str(item) for value in values for item in (value if isinstance(value, list) else [value])]
    return ",".join(flat)


def with_defaults(obj: Mapping[str, Any]) -> Mapping[str, Any]:
    """With the defaults that a cluster writes into spec and local mode does not."""
    kind = kind_named(str(obj["kind"]))
    try:
        model = kind.model.model_validate({k: obj[k] for k in ("metadata", "spec") if k in obj}, extra="ignore")
    except ValidationError:
        return obj
    return {**model.to_object(), **{k: v for k, v in obj.items() if k != "spec"}}


def _at(values: list[Any], path: str) -> Iterator[Any]:
    """The subset of JSONPath that printer columns use."""
    for step in _STEP.finditer(path):
        if step["name"] is not None:
            values = [v[step["name"]] for v in values if isinstance(v, dict) and step["name"] in v]
        elif step["index"] is not None:
            values = [v[int(step["index"])] for v in values if isinstance(v, list) and int(step["index"]) < len(v)]
        else:
            values = [i for v in values if isinstance(v, list) for i in v if i.get(step["key"]) == step["value"]]
    yield from (value for value in values if value is not None)


def age(timestamp: str, *, now: datetime) -> str:
    """How long ago, in the two largest units that say something: 45s, 3m10s, 5h, 2d."""
    try:
        then = datetime.fromisoformat(timestamp.replace("Z", "+00:00"))
    except ValueError:
        return ""
    seconds = max(0, int((now - then).total_seconds()))
    if seconds < 120:
        return f"{seconds}s"
    minutes, seconds = divmod(seconds, 60)
    if minutes < 10:
        return f"{minutes}m{seconds}s" if seconds else f"{minutes}m"
    hours, minutes = divmod(minutes, 60)
    if hours < 1:
        return f"{minutes}m"
    days, hours = divmod(hours, 24)
    if not days:
        return f"{hours}h{minutes}m" if hours < 10 and minutes else f"{hours}h"
    return f"{days}d{hours}h" if days < 8 and hours else f"{days}d"


def utc_now() -> datetime:
    return datetime.now(UTC)

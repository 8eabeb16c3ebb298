"""Objects out of answers, checked as far as everybody relies on what an API server sends."""

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from fairway.kube.errors import Unreachable
from fairway.kube.resource import Obj

# Not everything that answers is an API server: login pages, gateways and proxies that cut answers off do, too. That is
# as good as no answer: whoever asked has to ask again. It must never look like a bug of ours.


def decode(text: bytes) -> Obj:
    """Any JSON object."""
    try:
        decoded = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise Unreachable(f"the answer is no JSON ({error})") from None
    if not isinstance(decoded, dict):
        raise Unreachable("the answer is no JSON object")
    return decoded


def read_object(text: bytes, *, managed_fields: bool = False) -> Obj:
    return checked(decode(text), managed_fields=managed_fields)


def checked(obj: Any, *, named: bool = True, managed_fields: bool = False) -> Obj:
    """A Kubernetes object with its metadata as they should be; without managedFields unless they are asked for."""
    metadata = obj.get("metadata") if isinstance(obj, dict) else None
    if not isinstance(metadata, dict):
        raise Unreachable("the answer is no Kubernetes object")
    if not managed_fields:
        metadata.pop("managedFields", None)
    if named and not metadata.get("name"):
        raise Unreachable("the answer is a Kubernetes object without a name")
    for name, kind in _METADATA:
        if metadata.get(name) is None:
            metadata.pop(name, None)
        elif not isinstance(metadata[name], kind):
            raise Unreachable(f"the answer is no Kubernetes object: its metadata.{name} is no {_WORDS[kind]}")
    assert isinstance(obj, dict)
    return obj


def items_of(body: Obj) -> Sequence[Obj]:
    """The items of a list; a server may write none as null."""
    items = body.get("items")
    if items is None:
        items = []
    if not isinstance(items, list):
        raise Unreachable("the answer is no list of Kubernetes objects")
    return [checked(item) for item in items]


def text_at(body: Obj, *path: str) -> str:
    """A text that must be there."""
    found: Any = body
    for name in path:
        found = found.get(name) if isinstance(found, dict) else None
    if not isinstance(found, str):
        raise Unreachable(f"the answer has no {'.'.join(path)}")
    return found


_METADATA: Sequence[tuple[str, type]] = (
    ("name", str),
    ("namespace", str),
    ("uid", str),
    ("resourceVersion", str),
    ("labels", dict),
    ("annotations", dict),
    ("ownerReferences", list),
)
_WORDS: Mapping[type, str] = {str: "text", dict: "mapping", list: "list"}

"""Which of two resourceVersions of one resource is newer, where that can be said at all."""

from collections.abc import Mapping
from enum import Enum
from typing import Any


class Order(Enum):
    OLDER = -1
    SAME = 0
    NEWER = 1
    UNKNOWN = None


def compare(left: str, right: str) -> Order:
    """`left` relative to `right`.

    Kubernetes promises decimal numbers that grow; anything else (an aggregated API may send it) is only ever the same
    or unknown, and the caller must then go by the order of arrival.
    """
    if left == right:
        return Order.SAME if left else Order.UNKNOWN
    if not (_is_number(left) and _is_number(right)):
        return Order.UNKNOWN
    return Order.NEWER if (len(left), left) > (len(right), right) else Order.OLDER


def version_of(obj: Mapping[str, Any]) -> str:
    version: str = obj["metadata"].get("resourceVersion", "")
    return version


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and text[0] != "0"

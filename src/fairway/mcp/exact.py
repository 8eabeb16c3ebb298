"""JSON read so that no other parser can read it differently: for values on which a decision about rights rests.

Parsers differ in which of two members with one name counts, and some do not tell upper from lower case; some take NaN.
What could be read in two ways is refused here, wherever it is nested.
"""

import json
import re
from typing import Any, Final


class Ambiguous(ValueError):
    """The text is no JSON, or not the same JSON to everybody."""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs) or (len(pairs) > 1 and len({name.casefold() for name in members}) != len(pairs)):
        raise Ambiguous("two members of one object have the same name")
    return members


def _constant(name: str) -> Any:
    raise Ambiguous(f"{name} is not JSON")


_decoder: Final = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_constant)


_surrogate: Final = re.compile(r"\\u[dD][89a-fA-F]")


def read(data: bytes | bytearray | memoryview) -> Any:
    """The value. Raises Ambiguous."""
    try:
        text = str(data, "utf-8")
        value = _decoder.decode(text)
        if _surrogate.search(text):
            json.dumps(value, ensure_ascii=False).encode()  # fails on half a character, which parsers replace or keep
        return value
    except Ambiguous:
        raise
    except RecursionError:
        raise Ambiguous("too deeply nested") from None
    except ValueError as error:  # not UTF-8, not JSON, or an integer of thousands of digits
        raise Ambiguous(f"not JSON: {error}") from None

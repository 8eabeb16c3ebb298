"""A span of time as people write it: 500ms, 30s, 1h30m."""

import re
from typing import Annotated, Final

from pydantic import Field

PATTERN: Final = r"^([0-9]{1,5}(h|m|s|ms)){1,4}$"

Duration = Annotated[str, Field(max_length=32, pattern=PATTERN)]

_PART: Final = re.compile(r"([0-9]+)(ms|h|m|s)")
_SECONDS: Final = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}


def seconds_of(text: str) -> float:
    return sum(int(number) * _SECONDS[unit] for number, unit in _PART.findall(text))

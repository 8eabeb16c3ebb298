"""Kubernetes quantities: "500m" of CPU, "1Gi" of memory, in the one spelling that the API server itself would use."""

import re
from fractions import Fraction
from functools import lru_cache
from typing import Any, Final

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

PATTERN: Final = r"^([0-9]+(\.[0-9]*)?|\.[0-9]+)(([KMGTPE]i)|[numkMGTPE]|([eE][-+]?[0-9]{1,2}))?$"
MAX_LENGTH: Final = 64

_SHAPE: Final = re.compile(PATTERN.replace("$", r"\Z"), re.ASCII)
_BINARY: Final = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_DECIMAL: Final = {-9: "n", -6: "u", -3: "m", 0: "", 3: "k", 6: "M", 9: "G", 12: "T", 15: "P", 18: "E"}
_DECIMAL_EXPONENT: Final = {suffix: exponent for exponent, suffix in _DECIMAL.items()}
_LARGEST: Final = 2**63 - 1
_SMALLEST_EXPONENT: Final = -9


class InvalidQuantity(ValueError):
    """No amount that Kubernetes understands."""


def value_of(text: str) -> Fraction:
    """The amount itself."""
    return _parsed(text)[0]


@lru_cache(maxsize=4096)  # the same few amounts stand in every server, and each is worked out with fractions
def canonical(text: str) -> str:
    """The same amount, in the same family of units, as the API server writes it back."""
    amount, family = _parsed(text)
    if family == "binary" and amount >= 1024:
        whole, step = _ceil(amount), 0
        while whole % 1024 == 0 and step + 1 < len(_BINARY):
            whole, step = whole // 1024, step + 1
        if step:
            return f"{whole}{_BINARY[step]}"
        amount, family = Fraction(whole), "decimal"  # as it will be read back, since nothing binary is left of it
    nanos, exponent = _ceil(amount * 10**-_SMALLEST_EXPONENT), _SMALLEST_EXPONENT
    if nanos == 0:
        return "0"
    while nanos % 1000 == 0 and (exponent < 18 or family == "exponent"):
        nanos, exponent = nanos // 1000, exponent + 3
    if family == "exponent":
        return f"{nanos}e{exponent}" if exponent else str(nanos)
    return f"{nanos}{_DECIMAL[exponent]}"


def _parsed(text: str) -> tuple[Fraction, str]:
    if len(text) > MAX_LENGTH or not _SHAPE.match(text):
        raise InvalidQuantity("not a quantity: write a number with an optional unit, such as 500m, 2, 64Mi or 1.5G")
    number = re.match(r"[0-9.]+", text)
    assert number is not None
    suffix = text[number.end() :]
    amount = Fraction(number[0] if not number[0].endswith(".") else number[0][:-1])
    if suffix in _BINARY[1:]:
        amount, family = amount * 1024 ** _BINARY.index(suffix), "binary"
    elif suffix in _DECIMAL_EXPONENT:
        amount, family = amount * Fraction(10) ** _DECIMAL_EXPONENT[suffix], "decimal"
    else:
        amount, family = amount * Fraction(10) ** int(suffix[1:]), "exponent"
    if amount > _LARGEST:
        raise InvalidQuantity("more than Kubernetes can count")
    return amount, family


def _ceil(amount: Fraction) -> int:
    return -(-amount.numerator // amount.denominator)


class Quantity(str):
    """A quantity in a model: a number or text comes in, canonical text is kept."""

    __slots__ = ()

    @classmethod
    def read(cls, given: Any) -> "Quantity":
        if isinstance(given, bool) or not isinstance(given, int | str):
            raise ValueError("a quantity is a number or text, such as 2, 500m or 64Mi")
        return cls(canonical(str(given)))

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(
            cls.read, serialization=core_schema.plain_serializer_function_ser_schema(str)
        )

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        # the pattern is for text, and the bound for numbers
        return {"x-kubernetes-int-or-string": True, "pattern": PATTERN, "maxLength": MAX_LENGTH, "minimum": 0}

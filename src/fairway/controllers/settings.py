"""What an operator is told about the place it runs in; an object's own fields win over it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Settings:
    """Operator-wide settings that shape the generated objects."""

    image: str
    """The Fairway image: proxy and inline-tools server run from it."""
    image_pull_policy: str = "IfNotPresent"

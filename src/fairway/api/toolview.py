"""The tools as clients see them: one filter and one renaming, used alike for lists and for calls."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field


class ToolConflict(ValueError):
    """Two tools would carry one name, or a rename leads nowhere sensible."""


@dataclass(frozen=True, slots=True)
class Presented:
    """How one tool is shown; None keeps what the server says."""

    name: str | None = None
    description: str | None = None
    annotations: Mapping[str, str | bool] = field(default_factory=dict)
    """Title and hints, as MCP spells them."""


@dataclass(frozen=True, slots=True)
class ToolView:
    """Maps the server's tool names to what clients see, and back.

    `allowed` holds the server's own names, and patterns of them in which `*` stands for any characters and `?` for one;
    None admits every tool. A name that no client may use maps to None in
    both directions: a hidden tool can be neither seen nor called, and a renamed tool not under its old name.
    """

    allowed: frozenset[str] | None = None
    presented: Mapping[str, Presented] = field(default_factory=dict)
    _backend_by_exposed: Mapping[str, str] = field(init=False, repr=False, compare=False)
    _patterns: re.Pattern[str] | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        globs = sorted(name for name in self.allowed or () if is_pattern(name))
        object.__setattr__(self, "_patterns", re.compile("|".join(map(_regex, globs)), re.DOTALL) if globs else None)
        by_exposed: dict[str, str] = {}
        for backend, presented in self.presented.items():
            if presented.name is None or presented.name == backend or not self._admits(backend):
                continue
            if presented.name in by_exposed:
                both = " and ".join(sorted((by_exposed[presented.name], backend)))
                raise ToolConflict(f"{both} are both renamed to {presented.name}")
            by_exposed[presented.name] = backend
        for exposed, backend in by_exposed.items():
            if self.allowed is not None and exposed in self.allowed and self._own_name_kept(exposed):
                raise ToolConflict(f"{backend} is renamed to {exposed}, which is another tool's name")
        object.__setattr__(self, "_backend_by_exposed", by_exposed)

    def _admits(self, backend: str) -> bool:
        if self.allowed is None or backend in self.allowed:
            return True
        return self._patterns is not None and self._patterns.fullmatch(backend) is not None

    @property
    def named(self) -> frozenset[str]:
        """Every tool of the server that it speaks of by its very name."""
        return frozenset(name for name in self.allowed or () if not is_pattern(name)) | self.presented.keys()

    def _own_name_kept(self, backend: str) -> bool:
        presented = self.presented.get(backend)
        return presented is None or presented.name is None or presented.name == backend

    @property
    def passes_everything(self) -> bool:
        return self.allowed is None and not self.presented

    def exposed(self, backend: str) -> str | None:
        """The name that clients see for a tool of the server; None if it is hidden."""
        if not self._admits(backend):
            return None
        presented = self.presented.get(backend)
        name = backend if presented is None or presented.name is None else presented.name
        # a rename takes precedence over a tool of the server that happens to have the new name
        return name if self._backend_by_exposed.get(name, backend) == backend else None

    def backend(self, exposed: str) -> str | None:
        """The server's name for what a client asks for; None if the client may not have it."""
        renamed = self._backend_by_exposed.get(exposed)
        if renamed is not None:
            return renamed
        return exposed if self._admits(exposed) and self._own_name_kept(exposed) else None

    def description(self, backend: str) -> str | None:
        """The description to show instead of the server's own."""
        presented = self.presented.get(backend)
        return None if presented is None else presented.description

    def unknown(self, offered: Iterable[str]) -> list[str]:
        """Names this view speaks of that the server does not offer."""
        there = set(offered)
        patterns = (name for name in self.allowed or () if is_pattern(name))
        idle = [pattern for pattern in patterns if not any(map(re.compile(_regex(pattern)).fullmatch, there))]
        return sorted([*(self.named - there), *idle])

    def annotations(self, backend: str) -> Mapping[str, str | bool]:
        """Title and hints to show instead of the server's own."""
        presented = self.presented.get(backend)
        return {} if presented is None else presented.annotations

    def shadowed(self, offered: Iterable[str]) -> list[str]:
        """Tools of the server that a rename has taken the name of."""
        return sorted(n for n in offered if self._admits(n) and self.exposed(n) is None)


def is_pattern(name: str) -> bool:
    """Whether it stands for more than one tool; no name that MCP recommends has these characters."""
    return "*" in name or "?" in name


def _regex(pattern: str) -> str:
    # atomic groups: a name that somebody makes up to match almost costs no more than one that matches
    first, *rest = (_literal(part) for part in re.sub(r"\*+", "*", pattern).split("*"))
    if not rest:
        return first
    *middle, last = rest
    return first + "".join(f"(?>.*?{part})" for part in middle) + f".*{last}"


def _literal(text: str) -> str:
    return "".join("." if c == "?" else re.escape(c) for c in text)

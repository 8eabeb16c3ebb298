"""What others may put around the reconciles of a controller that is not theirs: validators and hooks."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import import_module

from fairway.kube.resource import Obj
from fairway.runtime.outcome import Outcome, Requeue
from fairway.runtime.setting import InvalidSetting
from fairway.runtime.store import StoreView

Validator = Callable[[Obj, StoreView], Iterable[str]]
"""Says what is wrong with an object, each time beginning with the field; nothing if it is good.

An object with something wrong is not reconciled: what runs of it keeps running as it was, and its status and an event
say what the validators said. It comes up again when it changes, or whatever else would have brought it up.
"""


class Hook:
    """Is called before and after each reconcile of an object; override what you need.

    Objects are shared with everybody: read, never change. Both calls count against the time limit of the reconcile,
    and may come again for the same state (after a restart, or when something failed), so they must bear repetition. An
    exception is treated as one of the reconciler: a KubeError is retried quietly, anything else shows its traceback;
    either way the reconcile comes again after a backoff, hooks included.
    """

    async def before(self, obj: Obj, store: StoreView) -> Requeue | None:
        """Before anything is decided. A Requeue puts the reconcile off, for that long and that reason."""

    async def after(self, obj: Obj, outcome: Outcome) -> None:
        """When the children are applied and the status, if there was one, is written."""


@dataclass(frozen=True, slots=True)
class Extension:
    """Validators and hooks that belong together, for controllers of one kind (or, if empty, of every kind)."""

    kind: str = ""
    validators: tuple[Validator, ...] = ()
    hooks: tuple[Hook, ...] = ()

    def applies_to(self, kind: str) -> bool:
        return self.kind in ("", kind)


_DOTTED = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


def dotted_names(text: str) -> tuple[str, ...]:
    names = tuple(part.strip() for part in text.split(",") if part.strip())
    if not all(_DOTTED.fullmatch(name) for name in names):
        raise ValueError("is no list of extensions; write package.module:name")
    return names


def load_extensions(names: Iterable[str]) -> tuple[Extension, ...]:
    """Imports each `module:name`, which must be an Extension."""
    found: list[Extension] = []
    for name in names:
        module, _, attribute = name.partition(":")
        try:
            extension = getattr(import_module(module), attribute)
        except ImportError as error:
            raise InvalidSetting(f"extension {name}: {error}; is it installed in this image?") from error
        except AttributeError:
            raise InvalidSetting(f"extension {name}: the module {module} has no {attribute}") from None
        if not isinstance(extension, Extension):
            raise InvalidSetting(f"extension {name}: is a {type(extension).__name__}, not an Extension")
        found.append(extension)
    return tuple(found)

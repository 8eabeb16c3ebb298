"""Authorization: may this principal do this? Cedar decides; what it said is remembered where that is sound.

The answer for one token, method and name is kept as long as the policies stay, unless the policies that could match
look at the call's arguments: then Cedar is asked for each call, with only those arguments and claims that they look at.
Whatever goes wrong on the way is a no.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import Any, Final

import cedarpy
import msgspec

from fairway.mcp import exact
from fairway.mcp.actions import RULES, Access, Rule, Target, Unclear, targets
from fairway.mcp.protocol import ErrorCode
from fairway.proxy.answers import Refusal
from fairway.proxy.middleware.cedar import Book, Slice
from fairway.proxy.middleware.principal import Principal

Buffer = bytes | msgspec.Raw

MAX_PRINCIPALS: Final = 4096
MAX_DECISIONS: Final = 2048
"""For each principal."""
MAX_NAME: Final = 4096
MAX_TARGETS: Final = 256
MAX_ARGUMENTS: Final = 256 << 10
"""Bytes of arguments that are read without counting what is in them."""
MAX_VALUES: Final = 100_000
"""In larger ones: to read more would hold up everybody else."""

UNKNOWN_METHOD: Final = Refusal(404, "this method is unknown here", ErrorCode.METHOD_NOT_FOUND)
_NOT_YOURS: Final = Refusal(404, "there is no such task", ErrorCode.INVALID_PARAMS)
_NO_ARGUMENTS: Final = b"{}"
_UNDECIDED: Final = object()
_RESERVED: Final = frozenset({"__entity", "__extn", "__expr"})
_DECIMAL: Final = re.compile(r"-?[0-9]{1,14}\.[0-9]{1,4}")


class Unrepresentable(ValueError):
    """A value that policies cannot look at, so nobody can say whether it is allowed."""


@dataclass(slots=True)
class Counts:
    """For metrics."""

    evaluated: int = 0
    denied: int = 0
    errors: int = 0
    """Evaluations in which a policy, or the request itself, failed."""


@dataclass(slots=True)
class _Sight:
    """What is known of one principal under the policies of now."""

    entities: cedarpy.Entities
    decisions: dict[tuple[str, str], "Refusal | Slice | None"] = field(default_factory=dict)
    visible: dict[tuple[str, str], bool] = field(default_factory=dict)
    shared: dict[tuple[int, bool], tuple[bool, str]] = field(default_factory=dict)
    """Answers of slices that do not tell names apart, by slice and whether a list asked."""


class Authorizer:
    """Decides on methods and names under one book of policies at a time.

    `owns` says whether a principal made a task; without it nobody knows of tasks here, as on a server that has none.
    An empty book denies everything that policies decide on.
    """

    def __init__(self, book: Book, *, owns: Callable[[Principal, str], bool] | None = None) -> None:
        self.counts = Counts()
        self.generation = 0
        self._book = book
        self._owns = owns
        self._sights: dict[Principal, _Sight] = {}

    def replace(self, book: Book) -> None:
        """Other policies from now on; nothing that was decided before counts any more."""
        self._book = book
        self._sights = {}
        self.generation += 1

    def check(
        self, principal: Principal, method: str, params: Mapping[str, Buffer] | None, name: str | None = None
    ) -> Refusal | None:
        """One request. `name` is what the parameter that the method's rule names holds, if the caller has read it."""
        rule = RULES.get(method)
        if rule is None or (rule.access is Access.OWNED and self._owns is None):
            return self._deny(UNKNOWN_METHOD)
        if rule.access is Access.OPEN or rule.access is Access.LIST:
            return None
        if name is not None and rule.access is Access.AUTHORISED and rule.param:
            return self._check_one(principal, method, rule, name, params)
        try:
            wanted = targets(method, params or {})
        except Unclear as error:
            return self._deny(Refusal(400, str(error), ErrorCode.INVALID_PARAMS))
        if len(wanted) > MAX_TARGETS:
            return self._deny(Refusal(400, f"{method}: more than {MAX_TARGETS} names", ErrorCode.INVALID_PARAMS))
        for target in wanted:
            refusal = self._check_target(principal, method, rule, target, params)
            if refusal is not None:
                return refusal
        return None

    def visible(self, principal: Principal, method: str, names: Iterable[str]) -> list[bool]:
        """Which of these names a list may show: those that are allowed for at least some arguments."""
        rule = RULES[method]
        if rule.access is not Access.LIST or rule.action is None or rule.kind is None:
            raise ValueError(f"{method} is not a list that is filtered")
        sight = self._sights.get(principal) or self._look_at(principal)
        shown = []
        for name in names:
            answer = sight.visible.get((method, name))
            if answer is None:
                answer = (
                    len(name) <= MAX_NAME
                    and self._decide(sight, principal, self._slice(rule, name), rule, name, listed=True)[0]
                )
                _keep(sight.visible, (method, name), answer)
            shown.append(answer)
        return shown

    # one name

    def _check_target(
        self, principal: Principal, method: str, rule: Rule, target: Target, params: Mapping[str, Buffer] | None
    ) -> Refusal | None:
        if target.action is None:
            owned = self._owns is not None and self._owns(principal, target.name)
            return None if owned else self._deny(_NOT_YOURS)
        # the kind depends on the request where one method acts on several: they must not share remembered answers
        return self._check_one(
            principal, f"{method} {target.kind}", Rule(rule.access, target.action, target.kind), target.name, params
        )

    def _check_one(
        self, principal: Principal, method: str, rule: Rule, name: str, params: Mapping[str, Buffer] | None
    ) -> Refusal | None:
        sight = self._sights.get(principal) or self._look_at(principal)
        key = (method, name)
        known = sight.decisions.get(key, _UNDECIDED)
        if known is None:
            return None
        if isinstance(known, Refusal):
            return self._deny(known)
        if isinstance(known, Slice):
            return self._evaluate_call(sight, principal, known, rule, name, params)
        if len(name) > MAX_NAME:
            return self._deny(Refusal(400, f"{method}: the name is too long", ErrorCode.INVALID_PARAMS))
        found = self._slice(rule, name)
        if found.reads.any_argument:
            _keep(sight.decisions, key, found)
            return self._evaluate_call(sight, principal, found, rule, name, params)
        answer = self._answer(rule, name, *self._decide(sight, principal, found, rule, name, listed=False))
        _keep(sight.decisions, key, answer)
        return answer

    def _slice(self, rule: Rule, name: str) -> Slice:
        assert rule.action is not None
        assert rule.kind is not None
        return self._book.slice(rule.action, rule.kind, name)

    def _decide(
        self, sight: _Sight, principal: Principal, found: Slice, rule: Rule, name: str, *, listed: bool
    ) -> tuple[bool, str]:
        """What does not depend on arguments; asked once for all names that the policies do not tell apart."""
        assert rule.kind is not None
        if self._book.told_apart(found, rule.kind, name):
            return self._evaluate(sight, principal, found, rule, name, listed=listed)
        key = (id(found), listed)  # a book keeps its slices as long as this sight can exist
        answer = sight.shared.get(key)
        if answer is None:
            answer = sight.shared[key] = self._evaluate(sight, principal, found, rule, name, listed=listed)
        return answer

    def _answer(self, rule: Rule, name: str, allowed: bool, detail: str) -> Refusal | None:
        if allowed:
            return None
        assert rule.kind is not None
        return self._deny(Refusal(403, f"{rule.kind.lower()} {name} is not allowed for this client", 403, (), detail))

    def _evaluate_call(
        self,
        sight: _Sight,
        principal: Principal,
        found: Slice,
        rule: Rule,
        name: str,
        params: Mapping[str, Buffer] | None,
    ) -> Refusal | None:
        raw = None if params is None else params.get("arguments")
        try:
            if raw is not None and len(raw) > MAX_ARGUMENTS and _values_in(bytes(raw)) > MAX_VALUES:
                raise Unrepresentable(f"there are more than {MAX_VALUES} values in them")
            arguments = exact.read(memoryview(_NO_ARGUMENTS if raw is None else raw))
            if arguments is None:
                arguments = {}
            if not isinstance(arguments, dict):
                raise Unrepresentable("they are not an object")
            _check_spelling(arguments, found.reads.arguments)
            wanted = _representable(_chosen(arguments, found.reads.arguments))
        except (exact.Ambiguous, Unrepresentable, RecursionError) as error:
            self.counts.errors += 1
            return self._deny(
                Refusal(400, f"the arguments cannot be judged by a policy: {error}", ErrorCode.INVALID_PARAMS)
            )
        allowed, detail = self._evaluate(sight, principal, found, rule, name, arguments=wanted)
        return self._answer(rule, name, allowed, detail)

    # Cedar

    def _evaluate(
        self,
        sight: _Sight,
        principal: Principal,
        found: Slice,
        rule: Rule,
        name: str,
        *,
        listed: bool = False,
        arguments: Mapping[str, Any] | None = None,
    ) -> tuple[bool, str]:
        """The answer, and for the audit log what it rests on."""
        policies, forbids = (found.possible, found.possible_forbids) if listed else (found.policies, found.forbids)
        self.counts.evaluated += 1
        context: dict[str, Any] = {}
        try:
            if found.reads.claims is None or found.reads.claims:
                context["claims"] = _representable(_chosen(principal.claims, found.reads.claims))
            if arguments is not None:
                context["arguments"] = arguments
            request: dict[str, Any] = {
                "principal": {"type": "Client", "id": principal.subject},
                "action": {"type": "Action", "id": rule.action},
                "resource": {"type": rule.kind, "id": name},
            }
            if context:
                request["context"] = json.dumps(context)
            result = cedarpy.is_authorized(request, policies, sight.entities)
        except (ValueError, RecursionError) as error:
            self.counts.errors += 1
            return False, f"the request cannot be evaluated: {error}"
        if result.diagnostics.errors:
            self.counts.errors += 1
            if not result.allowed:
                return False, "; ".join(result.diagnostics.errors)
            # Cedar skips a policy that fails. One that permits may be skipped; one that forbids must not be
            if forbids is not None:
                errors = cedarpy.is_authorized(request, forbids, sight.entities).diagnostics.errors
                if errors:
                    return False, "; ".join(errors)
        return result.allowed, ", ".join(result.diagnostics.reasons) or "no policy permits it"

    def _look_at(self, principal: Principal) -> _Sight:
        if len(self._sights) >= MAX_PRINCIPALS:
            del self._sights[next(iter(self._sights))]
        sight = self._sights[principal] = _Sight(_entities(self._book, principal))
        return sight

    def _deny(self, refusal: Refusal) -> Refusal:
        self.counts.denied += 1
        return refusal


def _entities(book: Book, principal: Principal) -> cedarpy.Entities:
    own: dict[str, Any] = {
        "uid": {"type": "Client", "id": principal.subject},
        "attrs": {
            "subject": principal.subject,
            "issuer": principal.issuer,
            "groups": sorted(set(principal.groups)),
            "scopes": sorted(principal.scopes),
        },
        "parents": [{"type": "Group", "id": group} for group in sorted(set(principal.groups))],
    }
    configured = book.entities.get(("Client", principal.subject))
    if configured is None:
        return book.base.with_added_json_str(json.dumps([own]))
    # what the token says wins: an entities file cannot be newer than a token
    merged = {
        **configured,
        "attrs": {**configured.get("attrs", {}), **own["attrs"]},
        "parents": [*configured.get("parents", []), *own["parents"]],
    }
    others = [entity for uid, entity in book.entities.items() if uid != ("Client", principal.subject)]
    return cedarpy.Entities.from_json_str(json.dumps([*others, merged]))


def _keep(memory: dict[tuple[str, str], Any], key: tuple[str, str], value: Any) -> None:
    if len(memory) >= MAX_DECISIONS:
        del memory[next(iter(memory))]
    memory[key] = value


def _chosen(values: Mapping[str, Any], names: frozenset[str] | None) -> Mapping[str, Any]:
    return values if names is None else {name: values[name] for name in names if name in values}


def _check_spelling(arguments: Iterable[str], names: frozenset[str] | None) -> None:
    """Some servers find an argument in any case, and then a policy has to see it too."""
    folded = {name.casefold(): name for name in names or ()}
    for name in arguments:
        wanted = folded.get(name.casefold(), name)
        if wanted != name and name not in (names or ()):
            raise Unrepresentable(f"{name} must be written {wanted}")


def _values_in(raw: bytes) -> int:
    """At most so many: text in strings is counted with them."""
    return raw.count(b",") + raw.count(b":") + raw.count(b"[") + raw.count(b"{")


def _representable(value: Any) -> Any:
    """A JSON value as Cedar can hold it. Nothing is ever left out: `has` must see what the server sees.

    Cedar has no fractions, no null and no integers beyond 64 bits. 3.0 becomes 3, as servers take it; 1.25 a decimal;
    null an empty record; any other number its text, which equals no number in a policy and compares to none.
    """
    match value:
        case bool() | str():
            return value
        case int():
            return value if -(1 << 63) <= value < 1 << 63 else str(value)
        case float():
            return _number(value)
        case None:
            return {}
        case list() | tuple():
            return [_representable(item) for item in value]
        case dict() | Mapping():
            if not _RESERVED.isdisjoint(value):
                raise Unrepresentable("a member has a name that means something else to policies")
            return {name: _representable(member) for name, member in value.items()}
    raise Unrepresentable(f"a value is a {type(value).__name__}")


def _number(value: float) -> Any:
    if isfinite(value) and value.is_integer() and -(1 << 63) <= value < 1 << 63:
        return int(value)
    text = repr(value)
    return {"__extn": {"fn": "decimal", "arg": text}} if _DECIMAL.fullmatch(text) else text

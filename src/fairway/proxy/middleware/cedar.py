"""Cedar policies, read once and cut into slices: the few that can matter for one action on one resource.

What a slice can read decides what its answers depend on: one that looks neither at a call's arguments nor at the
resource itself gives the same answer for every name that no policy mentions. That is found by walking the parsed
policies, and whatever the walk does not know counts as reading everything.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import cedarpy

from fairway.api import policy as contract
from fairway.mcp import exact

MAX_DEPTH: Final = 50
MAX_OPERATORS: Final = 2000
_ACTION: Final = "Action"


class InvalidPolicies(ValueError):
    """The policies cannot be used; the message says which and why."""


@dataclass(frozen=True, slots=True)
class Reads:
    """What conditions look at. None stands for everything."""

    claims: frozenset[str] | None = frozenset()
    arguments: frozenset[str] | None = frozenset()
    resource: bool = False

    def __or__(self, other: "Reads") -> "Reads":
        return Reads(
            None if self.claims is None or other.claims is None else self.claims | other.claims,
            None if self.arguments is None or other.arguments is None else self.arguments | other.arguments,
            self.resource or other.resource,
        )

    @property
    def any_argument(self) -> bool:
        return self.arguments is None or len(self.arguments) > 0


NOTHING: Final = Reads()
EVERYTHING: Final = Reads(None, None, True)


@dataclass(frozen=True, slots=True)
class Policy:
    """One policy as Cedar parsed it."""

    id: str
    forbids: bool
    body: Mapping[str, Any]
    reads: Reads


@dataclass(frozen=True, slots=True)
class Slice:
    """All policies that can match one action on one resource, and what their answer depends on."""

    policies: cedarpy.PolicySet
    reads: Reads
    forbids: cedarpy.PolicySet | None
    """Those that forbid, alone; None if there are none."""
    possible: cedarpy.PolicySet
    """For lists: allows what some arguments would be allowed for."""
    possible_forbids: cedarpy.PolicySet | None
    """Those of the last that forbid, alone."""


# reading


def read_policies(texts: Iterable[tuple[str, str]]) -> tuple[Policy, ...]:
    """Every policy of all texts, each text with the name of where it is from. Raises InvalidPolicies.

    One bad text spoils all: it may be the one that forbids.
    """
    policies: dict[str, Policy] = {}
    for source, text in texts:
        _check_nesting(source, text)
        parsed = _parsed(source, text)
        if parsed["templates"]:
            raise InvalidPolicies(f"{source}: templates (?principal, ?resource) grant nothing here; write policies")
        ordered = sorted(parsed["staticPolicies"].items(), key=lambda item: int(item[0].removeprefix("policy")))
        for index, (_, body) in enumerate(ordered):
            name = body.get("annotations", {}).get("id") or f"{source}#{index}"
            if name in policies:
                raise InvalidPolicies(f'{source}: two policies have @id("{name}")')
            policies[name] = Policy(name, body["effect"] == "forbid", body, _conditions_read(body["conditions"]))
    return tuple(policies.values())


def _parsed(source: str, text: str) -> dict[str, Any]:
    try:
        as_json = cedarpy.policies_to_json_str(text)
    except ValueError as error:
        raise InvalidPolicies(f"{source}: {error}") from None
    try:
        # slices are made from JSON, and what Cedar writes is deeper than what it reads again
        cedarpy.PolicySet.from_json_str(as_json)
        parsed: dict[str, Any] = json.loads(as_json)
    except (ValueError, RecursionError):
        raise InvalidPolicies(
            f"{source}: a condition is nested too deeply; use [...].contains() for long lists of alternatives"
        ) from None
    return parsed


_LEXEME: Final = re.compile(
    r'"(?:\\.|[^"\\])*"|//[^\n]*|(?P<open>[(\[{])|(?P<close>[)\]}])|(?P<end>;)'
    r"|(?P<operator>&&|\|\||[<>=!]=|[!<>+*.-]|\b(?:if|has|like|in|is)\b)",
    re.DOTALL,
)


def _check_nesting(source: str, text: str) -> None:
    """Cedar's parser recurses, and takes the whole process with it when its stack is used up."""
    depth = operators = 0
    for match in _LEXEME.finditer(text):
        match match.lastgroup:
            case "open":
                depth += 1
            case "close":
                depth -= 1
            case "operator":
                operators += 1
            case "end":
                operators = 0
        if depth > MAX_DEPTH or operators > MAX_OPERATORS:
            raise InvalidPolicies(f"{source}: a policy is nested too deeply or too long")


def read_entities(document: bytes | None, source: str = "entities") -> tuple[dict[str, Any], ...]:
    """Cedar's JSON list of entities. Raises InvalidPolicies."""
    if document is None:
        return ()
    try:
        listed = exact.read(document)
        cedarpy.Entities.from_json_str(json.dumps(listed))
    except ValueError as error:
        raise InvalidPolicies(f"{source}: {error}") from None
    return tuple(listed)


# what conditions read


def _conditions_read(conditions: Sequence[Mapping[str, Any]]) -> Reads:
    reads = NOTHING
    for condition in conditions:
        reads |= expression_reads(condition["body"])
    return reads


def expression_reads(node: Any) -> Reads:
    """What an expression of Cedar's JSON form looks at besides the principal."""
    if not isinstance(node, dict) or len(node) != 1:
        return EVERYTHING
    ((operator, operand),) = node.items()
    match operator, operand:
        case "Value", _:
            return NOTHING
        case "Var", "resource":
            return Reads(resource=True)
        case "Var", "principal" | "action":
            return NOTHING
        case "." | "has", {"left": left, "attr": str(attribute)}:
            return _attribute_read(left, attribute)
        case "like", {"left": left, "pattern": _}:
            return expression_reads(left)
        case "is", {"left": left, "entity_type": _}:
            return expression_reads(left) | (expression_reads(operand["in"]) if "in" in operand else NOTHING)
        case "Record", dict():
            return _union(operand.values())
        case "Set", list():
            return _union(operand)
        case _, list():  # a function of an extension
            return _union(operand)
        case _, dict() if operator not in ("Var", "Slot", "Unknown"):
            return _union(operand.values())
    return EVERYTHING  # the context as a whole, and whatever later versions of Cedar bring


def _union(nodes: Iterable[Any]) -> Reads:
    reads = NOTHING
    for node in nodes:
        reads |= expression_reads(node)
    return reads


def _attribute_read(left: Any, attribute: str) -> Reads:
    if left == {"Var": "context"}:
        match attribute:
            case "claims":
                return Reads(claims=None)
            case "arguments":
                return Reads(arguments=None)
        return NOTHING  # never there
    match left:
        case {".": {"left": {"Var": "context"}, "attr": "claims"}}:
            return Reads(claims=frozenset((attribute,)))
        case {".": {"left": {"Var": "context"}, "attr": "arguments"}}:
            return Reads(arguments=frozenset((attribute,)))
    return expression_reads(left)


# what a policy would say if its arguments were right


def _without_arguments(conditions: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The conditions that remain when every one that looks at arguments is taken as met."""
    kept: list[Mapping[str, Any]] = []
    for condition in conditions:
        joint: Literal["&&", "||"] = "&&" if condition["kind"] == "when" else "||"
        parts = [part for part in _parts(condition["body"], joint) if not expression_reads(part).any_argument]
        if parts:
            body = parts[0]
            for part in parts[1:]:
                body = {joint: {"left": body, "right": part}}
            kept.append({"kind": condition["kind"], "body": body})
    return kept


def _parts(node: Any, joint: str) -> list[Any]:
    if isinstance(node, dict) and joint in node:
        return _parts(node[joint]["left"], joint) + _parts(node[joint]["right"], joint)
    return [node]


# slicing


class Book:
    """Every policy and entity of one configuration. Immutable; slices are cut when they are first asked for.

    Their number is bounded by the names that policies mention: all others share one slice for each action and kind.
    """

    def __init__(self, policies: Sequence[Policy], entities: Sequence[Mapping[str, Any]] = ()) -> None:
        self.policies = tuple(policies)
        self.entities = {_uid(entity["uid"]): entity for entity in entities}
        self.base = cedarpy.Entities.from_json_str(json.dumps(list(entities)))
        self._kinds_with_entities = {kind for kind, _ in self.entities}
        self._mentioned = {
            _uid(scope["entity"]) for policy in self.policies if "entity" in (scope := policy.body["resource"])
        }
        self._slices: dict[tuple[str, str, str | None], Slice] = {}

    def slice(self, action: str, kind: str, name: str) -> Slice:
        key = (action, kind, name if (kind, name) in self._mentioned else None)
        found = self._slices.get(key)
        if found is None:
            found = self._slices[key] = self._cut(*key)
        return found

    def told_apart(self, found: Slice, kind: str, name: str) -> bool:
        """Whether a slice may answer differently for this name than for names that nothing is said about."""
        return found.reads.resource or (kind, name) in self._mentioned or (kind, name) in self.entities

    def _cut(self, action: str, kind: str, name: str | None) -> Slice:
        matching = [
            policy
            for policy in self.policies
            if self._action_matches(policy.body["action"], action)
            and self._resource_matches(policy.body["resource"], kind, name)
        ]
        reads = NOTHING
        for policy in matching:
            reads |= policy.reads
        policies, forbids = _policy_set(matching), _forbidding(matching)
        if not reads.any_argument:
            return Slice(policies, reads, forbids, possible=policies, possible_forbids=forbids)
        possible = [
            replace(policy, body={**policy.body, "conditions": _without_arguments(policy.body["conditions"])})
            for policy in matching
            if not (policy.forbids and policy.reads.any_argument)
        ]
        return Slice(policies, reads, forbids, possible=_policy_set(possible), possible_forbids=_forbidding(possible))

    def _action_matches(self, scope: Mapping[str, Any], action: str) -> bool:
        match scope["op"]:
            case "All":
                return True
            case "==":
                return _uid(scope["entity"]) == (_ACTION, action)
        if _ACTION in self._kinds_with_entities:
            return True  # actions may be in groups: Cedar decides
        listed = scope["entities"] if "entities" in scope else [scope["entity"]]
        return any(_uid(entity) == (_ACTION, action) for entity in listed)

    def _resource_matches(self, scope: Mapping[str, Any], kind: str, name: str | None) -> bool:
        match scope["op"]:
            case "All":
                return True
            case "is":
                return bool(scope["entity_type"] == kind)
        if scope["op"] == "==" or kind not in self._kinds_with_entities:
            return name is not None and _uid(scope["entity"]) == (kind, name)
        return True  # `in`, and resources may be in groups: Cedar decides


def _uid(entity: Mapping[str, Any]) -> tuple[str, str]:
    reference = entity.get("__entity", entity)
    return reference["type"], reference["id"]


def _policy_set(policies: Iterable[Policy]) -> cedarpy.PolicySet:
    bodies = {policy.id: policy.body for policy in policies}
    return cedarpy.PolicySet.from_json_str(json.dumps({"staticPolicies": bodies, "templates": {}, "templateLinks": []}))


def _forbidding(policies: Iterable[Policy]) -> cedarpy.PolicySet | None:
    those = [policy for policy in policies if policy.forbids]
    return _policy_set(those) if those else None


def load(config: contract.Authorization, read: Callable[[str], bytes]) -> Book:
    """The book that a configuration names; `read` gives the content of a file. Raises InvalidPolicies, OSError."""
    texts = [(f"policies[{index}]", text) for index, text in enumerate(config.policies)]
    try:
        texts += [(path, read(path).decode()) for path in config.policy_files]
    except UnicodeDecodeError:
        raise InvalidPolicies("policyFiles: a file is not UTF-8") from None
    entities = None if config.entities_file is None else read(config.entities_file)
    return Book(read_policies(texts), read_entities(entities, config.entities_file or ""))

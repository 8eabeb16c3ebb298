"""Pydantic models to CustomResourceDefinitions: structural schemas with CEL, list-map keys, columns and scale."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from fairway.api import mcpserver, mcptoolconfig
from fairway.api.names import CATEGORY, GROUP, VERSION
from fairway.api.schema import Model

_KEPT = frozenset(
    {
        "type",
        "description",
        "properties",
        "required",
        "items",
        "enum",
        "default",
        "minimum",
        "maximum",
        "exclusiveMinimum",
        "exclusiveMaximum",
        "multipleOf",
        "minLength",
        "maxLength",
        "pattern",
        "minItems",
        "maxItems",
        "minProperties",
        "maxProperties",
        "format",
        "additionalProperties",
    }
)
_UNICODE_CLASS = re.compile(r"\\[pP]")


class NotStructural(TypeError):
    """The model says something that a CRD cannot; the message names the field and what to write instead."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column of `kubectl get`."""

    name: str
    path: str
    type: str = "string"
    priority: int = 0

    def to_object(self) -> dict[str, Any]:
        wide = {"priority": self.priority} if self.priority else {}
        return {"name": self.name, "type": self.type, "jsonPath": self.path, **wide}


@dataclass(frozen=True, slots=True)
class Scale:
    """Where `kubectl scale` and a HorizontalPodAutoscaler read and write."""

    spec_path: str
    status_path: str
    selector_path: str

    def to_object(self) -> dict[str, str]:
        return {
            "specReplicasPath": self.spec_path,
            "statusReplicasPath": self.status_path,
            "labelSelectorPath": self.selector_path,
        }


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of ours, as its CRD presents it."""

    model: type[Model]
    kind: str
    plural: str
    short_names: tuple[str, ...]
    columns: tuple[Column, ...]
    scale: Scale | None = None


_AGE = Column("Age", ".metadata.creationTimestamp", "date")


def _condition(name: str, field: str = "status") -> str:
    return f'.status.conditions[?(@.type=="{name}")].{field}'


KINDS = (
    Kind(
        model=mcpserver.MCPServer,
        kind=mcpserver.KIND,
        plural=mcpserver.PLURAL,
        short_names=mcpserver.SHORT_NAMES,
        columns=(
            Column("Ready", _condition("Ready")),
            Column("Status", ".status.phase"),
            Column("Transport", ".status.transport"),
            Column("Tools", ".status.tools.count", "integer"),
            Column("Replicas", ".status.ready"),
            Column("URL", ".status.url"),
            _AGE,
            Column("Message", ".status.message", priority=1),
        ),
        scale=Scale(".spec.replicas", ".status.replicas", ".status.selector"),
    ),
    Kind(
        model=mcptoolconfig.MCPToolConfig,
        kind=mcptoolconfig.KIND,
        plural=mcptoolconfig.PLURAL,
        short_names=mcptoolconfig.SHORT_NAMES,
        columns=(
            Column("Ready", _condition("Ready")),
            Column("Users", ".status.users"),
            _AGE,
            Column("Message", _condition("Ready", "message"), priority=1),
        ),
    ),
)


def schema_of(model: type[Model]) -> dict[str, Any]:
    """The structural schema of one model."""
    document = model.model_json_schema(mode="validation")
    return _structural(document, document.get("$defs", {}), at=model.__name__, inside=())


def _structural(
    schema: Mapping[str, Any], definitions: Mapping[str, Any], *, at: str, inside: tuple[str, ...]
) -> dict[str, Any]:
    """One node without $ref, unions or anything else that a structural schema forbids."""
    node = dict(schema)
    if "$ref" in node:
        name = node.pop("$ref").rsplit("/", 1)[1]
        if name in inside:
            raise NotStructural(f"{at}: {name} contains itself; a CRD schema cannot")
        inside = (*inside, name)
        node = {**definitions[name], **node}
    if "allOf" in node and len(node["allOf"]) == 1:
        node = {**_structural(node.pop("allOf")[0], definitions, at=at, inside=inside), **node}
    if "anyOf" in node:
        node = _without_union(node, definitions, at=at, inside=inside)
    if "const" in node:
        node["enum"] = [node.pop("const")]
    if len(patterns := node.get("patternProperties", {})) == 1:
        (node["additionalProperties"],) = patterns.values()  # what keys must look like is for a rule to say
    for bound in ("minimum", "maximum"):
        exclusive = "exclusive" + bound.capitalize()
        if isinstance(node.get(exclusive), int | float) and not isinstance(node[exclusive], bool):
            node[bound], node[exclusive] = node[exclusive], True
    if _UNICODE_CLASS.search(node.get("pattern", "")):
        raise NotStructural(f"{at}: the API server's regular expressions have no \\p classes")
    out = {k: v for k, v in node.items() if k in _KEPT or k.startswith("x-kubernetes-")}
    if out.get("default", ...) is None:
        del out["default"]
    if isinstance(out.get("default"), dict):
        out["default"] = {}  # the nested fields' own defaults cascade, and stay the only source
    if "properties" in out:
        out["properties"] = {
            k: _structural(v, definitions, at=f"{at}.{k}", inside=inside) for k, v in out["properties"].items()
        }
    if "items" in out:
        out["items"] = _structural(out["items"], definitions, at=f"{at}[]", inside=inside)
    _settle_additional(out, definitions, at=at, inside=inside)
    return out


def _without_union(
    node: dict[str, Any], definitions: Mapping[str, Any], *, at: str, inside: tuple[str, ...]
) -> dict[str, Any]:
    alternatives = [a for a in node.pop("anyOf") if a.get("type") != "null"]
    if len(alternatives) == 1:  # optional: absent, never null
        return {**_structural(alternatives[0], definitions, at=at, inside=inside), **node}
    if {a.get("type") for a in alternatives} == {"integer", "string"}:
        return {"x-kubernetes-int-or-string": True, **node}
    raise NotStructural(f"{at}: a union; use one optional member for each variant and a CEL rule with exists_one")


def _settle_additional(
    out: dict[str, Any], definitions: Mapping[str, Any], *, at: str, inside: tuple[str, ...]
) -> None:
    additional = out.get("additionalProperties")
    if additional is None:
        return
    if isinstance(additional, dict):
        out["additionalProperties"] = _structural(additional, definitions, at=f"{at}.*", inside=inside)
        return
    del out["additionalProperties"]
    if additional:
        out["x-kubernetes-preserve-unknown-fields"] = True


def _object_schema(kind: Kind) -> dict[str, Any]:
    schema = schema_of(kind.model)
    properties = {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {"type": "object"},
        **{k: v for k, v in schema["properties"].items() if k != "metadata"},
    }
    required = [r for r in schema.get("required", ()) if r != "metadata"]
    return {**schema, "properties": properties, **({"required": required} if required else {})}


def crd(kind: Kind) -> dict[str, Any]:
    """The CustomResourceDefinition of one kind."""
    schema = _object_schema(kind)
    if not schema.get("required"):
        schema.pop("required", None)
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{kind.plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": kind.kind,
                "listKind": f"{kind.kind}List",
                "plural": kind.plural,
                "singular": kind.kind.lower(),
                "shortNames": list(kind.short_names),
                "categories": [CATEGORY],
            },
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "additionalPrinterColumns": [c.to_object() for c in kind.columns],
                    "subresources": {
                        "status": {},
                        **({"scale": kind.scale.to_object()} if kind.scale else {}),
                    },
                    "schema": {"openAPIV3Schema": schema},
                }
            ],
        },
    }


def crds() -> dict[str, dict[str, Any]]:
    """Every CRD by file name."""
    return {f"{GROUP}_{kind.plural}.yaml": crd(kind) for kind in KINDS}


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002  a repeated part is written out, not referred to
        return True


def to_yaml(*documents: Mapping[str, Any]) -> str:
    """YAML as people expect it in a repository: no aliases, keys in the order given."""
    return yaml.dump_all(documents, Dumper=_Dumper, sort_keys=False, width=120, explicit_start=len(documents) > 1)

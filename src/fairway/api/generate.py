"""Writes everything that is generated from the API types: CRDs and the JSON Schemas of the contracts."""

import argparse
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fairway.api import crd, names, proxystatus, runconfig
from fairway.api.conditions import ConditionType, Phase, Reason

HEADER = "# Generated from src/fairway/api by `make generate`. Do not edit.\n"


def _json(schema: dict[str, Any]) -> str:
    return json.dumps(schema, indent=2, sort_keys=True) + "\n"


def words() -> dict[str, Any]:
    """The words that other programs may rely on, in one place to compare across releases."""
    child = names.ChildNames("<server>")
    return {
        "apiVersion": names.API_VERSION,
        "fieldManager": names.FIELD_MANAGER,
        "labels": sorted(names.labels("<server>", "<component>")),
        "selector": sorted(names.selector("<server>", "<component>")),
        "components": [names.COMPONENT_PROXY, names.COMPONENT_SERVER],
        "annotations": [
            names.ANNOTATION_APPLIED_HASH,
            names.ANNOTATION_INPUTS_DIGEST,
            names.ANNOTATION_RESTARTED_AT,
            names.ANNOTATION_RUNCONFIG_HASH,
        ],
        "children": {
            "Deployment": [child.proxy, child.workload],
            "Service": [child.endpoints_service, child.service],
            "ConfigMap": [child.config, child.runconfig, child.tools],
            "Secret": [child.seal],
            "ServiceAccount": [child.proxy, child.workload],
            "Role": [child.proxy],
            "RoleBinding": [child.proxy],
            "NetworkPolicy": [child.network_policy],
            "HorizontalPodAutoscaler": [child.workload],
            "PodDisruptionBudget": [child.proxy, child.workload],
            "Ingress": [child.service],
            "HTTPRoute": [child.service],
            "ServiceMonitor": [child.proxy],
        },
        "containers": [names.CONTAINER_PROXY, names.CONTAINER_SERVER],
        "ports": {names.PORT_ADMIN: names.ADMIN_PORT, names.PORT_MCP: names.PROXY_PORT, "service": names.SERVICE_PORT},
        "url": child.url("<namespace>"),
        "conditionTypes": [t.value for t in ConditionType],
        "reasons": sorted(r.value for r in Reason),
        "phases": [p.value for p in Phase],
    }


def generated() -> dict[str, str]:
    """Content by path, relative to the repository."""
    files = {f"deploy/crds/{name}": HEADER + crd.to_yaml(document) for name, document in crd.crds().items()}
    files["docs/contracts/runconfig-v1.schema.json"] = _json(runconfig.json_schema())
    files["docs/contracts/proxystatus-v1.schema.json"] = _json(proxystatus.json_schema())
    files["docs/contracts/words-v1alpha1.json"] = _json(words())
    return files


def write(files: Callable[[Path], Mapping[str, str]], *, program: str, about: str | None) -> int:
    """The command line of whatever generates files. `files` gives content by path, relative to the repository."""
    parser = argparse.ArgumentParser(prog=f"python -m {program}", description=about)
    parser.add_argument("--root", type=Path, default=Path(), help="the repository (default: this directory)")
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 if a file is out of date")
    arguments = parser.parse_args()
    stale = []
    for name, content in files(arguments.root).items():
        path = arguments.root / name
        if path.exists() and path.read_text() == content:
            continue
        stale.append(name)
        if not arguments.check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
    for name in stale:
        print("out of date" if arguments.check else "written", name)  # noqa: T201
    return 1 if stale and arguments.check else 0


def main() -> int:
    return write(lambda _: generated(), program="fairway.api.generate", about=__doc__)


if __name__ == "__main__":
    sys.exit(main())

"""Which image a server runs from, and the rule that said so. Pure."""

import re
from dataclasses import dataclass

from fairway.api import defaults
from fairway.api.mcpserver import MCPServerSpec
from fairway.controllers.settings import Settings

_HAS_TAG_OR_DIGEST = re.compile(r"@|:[^/]*$")


class Unresolvable(ValueError):
    """The spec asks for something that this operator does not have."""


@dataclass(frozen=True, slots=True)
class Image:
    """A resolved image, with all that a person needs to know when it cannot be pulled."""

    reference: str
    pull_policy: str
    pull_secrets: tuple[str, ...]
    rule: str
    """The field or setting that chose the registry; empty if the image stands as written."""

    @property
    def explained(self) -> str:
        """How it came about, for the message of a failed pull."""
        how = [f"registry from {self.rule}"] if self.rule else []
        how.append(f"pull secret {', '.join(self.pull_secrets)}" if self.pull_secrets else "no pull secret")
        return "; ".join(how)


def server_image(spec: MCPServerSpec, settings: Settings) -> Image:
    """The image of the server's container; raises Unresolvable."""
    if spec.package is not None and spec.package.npm is not None and not settings.processes:
        reference, rule = settings.node_image, "the operator's --node-image"
        policy: str = spec.image_pull_policy or defaults.pull_policy(reference)
    elif spec.image is None:
        reference, rule = settings.image, ""
        policy = spec.image_pull_policy or settings.image_pull_policy
    else:
        registry, rule = _registry(spec, settings)
        reference = _with_tag(_moved(spec.image, registry), spec.image_tag)
        policy = spec.image_pull_policy or defaults.pull_policy(reference)
    return Image(reference, policy, _pull_secrets(spec, settings), rule)


def _registry(spec: MCPServerSpec, settings: Settings) -> tuple[str, str]:
    if spec.use_provisioned_registry:
        if not settings.provisioned_registry:
            raise Unresolvable(
                "spec.useProvisionedRegistry: this operator has none; start it with --provisioned-registry, "
                "or name the registry in spec.image or spec.registryOverride"
            )
        return settings.provisioned_registry, "spec.useProvisionedRegistry"
    if spec.registry_override:
        return spec.registry_override, "spec.registryOverride"
    return (settings.pull_host, "the operator's --pull-host") if settings.pull_host else ("", "")


def _moved(image: str, registry: str) -> str:
    """The same repository in another registry: a first part that is a host gives way."""
    if not registry:
        return image
    first, slash, rest = image.partition("/")
    named_a_host = slash and ("." in first or ":" in first or first == "localhost")
    return f"{registry}/{rest if named_a_host else image}"


def _with_tag(image: str, tag: str | None) -> str:
    return image if tag is None or _HAS_TAG_OR_DIGEST.search(image) else f"{image}:{tag}"


def _pull_secrets(spec: MCPServerSpec, settings: Settings) -> tuple[str, ...]:
    if spec.image_pull_secrets is not None:
        return tuple(spec.image_pull_secrets)
    if spec.use_provisioned_registry and settings.provisioned_pull_secret:
        return (settings.provisioned_pull_secret,)
    return settings.pull_secrets

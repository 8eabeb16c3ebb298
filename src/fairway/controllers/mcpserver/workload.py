"""The MCP server itself: what runs its pods, its account, and the files that it is given. Pure."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from fairway.api import names
from fairway.controllers.mcpserver import children, container, needs, package, proxy, scaling, shape, template
from fairway.controllers.mcpserver.children import Object, child_names
from fairway.controllers.mcpserver.image import server_image
from fairway.controllers.mcpserver.inputs import Inputs, Running
from fairway.controllers.mcpserver.needs import Need
from fairway.controllers.settings import Settings
from fairway.kube.resource import STATEFUL_SET
from fairway.runtime.child import digest

SERVER = names.COMPONENT_SERVER


def service_accounts(inputs: Inputs) -> list[Object]:
    """An account without rights, unless the user names one."""
    if inputs.server.spec.service_account_name or shape.workload(inputs) is None:
        return []
    return [children.service_account(inputs, child_names(inputs).workload, SERVER)]


def files(inputs: Inputs) -> list[Object]:
    """ConfigMaps that the pods mount."""
    spec, made = inputs.server.spec, []
    if spec.inline_tools is not None and spec.inline_tools.python is not None:
        data = {names.TOOLS_KEY: spec.inline_tools.python}
        made.append(children.config_map(inputs, child_names(inputs).tools, SERVER, data))
    if spec.config:
        made.append(children.config_map(inputs, child_names(inputs).config, SERVER, container.config_data(inputs)))
    return made


def needs_of(inputs: Inputs, settings: Settings) -> tuple[Need, ...]:
    """What the pods take from Secrets and ConfigMaps of the user's."""
    child = child_names(inputs)
    ours = (("ConfigMap", child.tools), ("ConfigMap", child.config), ("ConfigMap", shape.runconfig_name(inputs)))
    asked: tuple[Need, ...] = ()
    if shape.workload(inputs) is not None:
        _, pod = pod_of(inputs, settings)
        asked = needs.needs_of(pod, but=[(kind, name) for kind, name in ours])  # type: ignore[misc]
    tools = inputs.server.spec.inline_tools
    if tools is not None and tools.secret_key_ref is not None:
        secret = tools.secret_key_ref
        # our server reads its source once
        asked += (Need("Secret", secret.name, secret.key, False, "inlineTools", stays=True, python=True),)
    profile = inputs.server.spec.permission_profile
    if profile is None or profile.type != "configMap":
        return asked
    document = Need("ConfigMap", profile.name, profile.key, False, "permissionProfile", stays=False, read=True)
    return (*asked, document)


def objects(inputs: Inputs, settings: Settings) -> list[Object]:
    """What makes the pods; nothing for a server that has none."""
    kind = shape.workload(inputs)
    if kind is None:
        return []
    settings = _as_it_runs(inputs, settings)
    metadata, pod = pod_of(inputs, settings)
    made = children.stateful_set if kind == STATEFUL_SET else children.deployment
    replicas = None if scaling.autoscaled(inputs) and settings.publishes else shape.replicas(inputs)
    found = made(inputs, child_names(inputs).workload, SERVER, replicas=replicas, pod=pod, template=metadata)
    if _has_our_image(inputs):
        how = {names.ANNOTATION_IMAGE: settings.image, names.ANNOTATION_TEMPLATE: digest([metadata, pod])}
        found["metadata"]["annotations"] = how
    return [found]


def running(workload: Mapping[str, Any] | None) -> Running | None:
    """How a workload of ours was made; None if there is none, or none with our image in its pods."""
    said = {} if workload is None else workload["metadata"].get("annotations") or {}
    image, template = (said.get(name) for name in (names.ANNOTATION_IMAGE, names.ANNOTATION_TEMPLATE))
    return Running(image, template) if image and template else None


def _as_it_runs(inputs: Inputs, settings: Settings) -> Settings:
    """With the image that the pods have, if another one would be all that is new: no upgrade restarts a server."""
    known = inputs.running
    if known is None or known.image == settings.image or not _has_our_image(inputs):
        return settings
    as_before = replace(settings, image=known.image)
    return as_before if digest(list(pod_of(inputs, as_before))) == known.template else settings


def _has_our_image(inputs: Inputs) -> bool:
    """Whether Fairway's own image runs in the server's pods."""
    spec = inputs.server.spec
    return shape.sidecar(inputs) or spec.inline_tools is not None or (spec.package is not None and not spec.package.npm)


def pod_of(inputs: Inputs, settings: Settings) -> tuple[Object, Object]:
    """Metadata and spec of the server's pods, with the user's template over them; raises TemplateRefused."""
    spec = inputs.server.spec
    labels = names.labels(inputs.server.metadata.name, SERVER)
    annotations = _annotations(inputs)
    metadata = {"labels": labels, **({"annotations": annotations} if annotations else {})}
    pod = _pod(inputs, settings)
    if spec.pod_template is None:
        return metadata, pod
    given = spec.pod_template.model_dump(by_alias=True, exclude_none=False, mode="json")
    metadata, pod = template.merged(metadata, pod, given)
    return metadata, container.within_grace(pod)


def _pod(inputs: Inputs, settings: Settings) -> Object:
    spec = inputs.server.spec
    from_elsewhere = needs.names_from(inputs.needs, inputs.contents)
    return children.pod_spec(
        settings,
        account=spec.service_account_name or child_names(inputs).workload,
        # whether a named account comes with a token is for the account to say
        token=None if spec.service_account_name else False,
        container=container.server_container(inputs, settings, from_elsewhere=from_elsewhere),
        security=container.security_context(inputs),
        init=[package.fetch(inputs, settings)] if package.in_pod(inputs) else [],
        beside=[proxy.container(inputs, settings)] if shape.sidecar(inputs) else [],
        volumes=[*container.volumes(inputs, settings), *(proxy.volumes(inputs) if shape.sidecar(inputs) else [])],
        pull_secrets=server_image(spec, settings).pull_secrets,
    )


def _annotations(inputs: Inputs) -> dict[str, str]:
    """What a running container would not notice by itself, so that a change there replaces the pods."""
    server, spec = inputs.server, inputs.server.spec
    parts = needs.digest_parts(inputs.needs, inputs.contents)
    if spec.inline_tools is not None and spec.inline_tools.python is not None:
        parts.append(spec.inline_tools.python)
    if spec.config:
        parts += [f"{key}={value}" for key, value in container.config_data(inputs).items()]
    found = {}
    if (digest := needs.digest(parts)) is not None:
        found[names.ANNOTATION_INPUTS_DIGEST] = digest
    if restarted := server.metadata.annotations.get(names.ANNOTATION_RESTARTED_AT):
        found[names.ANNOTATION_RESTARTED_AT] = restarted
    return found

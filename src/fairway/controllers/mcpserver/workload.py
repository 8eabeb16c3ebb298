"""The MCP server itself: its Deployment, its account, and the files that it is given. Pure."""

from fairway.api import names
from fairway.controllers.mcpserver import children, container, needs, scaling, template
from fairway.controllers.mcpserver.children import Object, child_names
from fairway.controllers.mcpserver.image import server_image
from fairway.controllers.mcpserver.inputs import Inputs
from fairway.controllers.mcpserver.needs import Need
from fairway.controllers.settings import Settings

SERVER = names.COMPONENT_SERVER


def service_accounts(inputs: Inputs) -> list[Object]:
    """An account without rights, unless the user names one."""
    if inputs.server.spec.service_account_name:
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
    ours = (("ConfigMap", child.tools), ("ConfigMap", child.config))
    _, pod = pod_of(inputs, settings)
    asked = needs.needs_of(pod, but=[(kind, name) for kind, name in ours])  # type: ignore[misc]
    profile = inputs.server.spec.permission_profile
    if profile is None or profile.type != "configMap":
        return asked
    document = Need("ConfigMap", profile.name, profile.key, False, "permissionProfile", stays=False, read=True)
    return (*asked, document)


def deployment(inputs: Inputs, settings: Settings) -> Object:
    metadata, pod = pod_of(inputs, settings)
    return children.deployment(
        inputs,
        child_names(inputs).workload,
        SERVER,
        replicas=None if scaling.autoscaled(inputs) and settings.publishes else wanted_replicas(inputs),
        pod=pod,
        template=metadata,
    )


def wanted_replicas(inputs: Inputs) -> int:
    return 0 if inputs.server.spec.suspend else inputs.server.spec.replicas


def pod_of(inputs: Inputs, settings: Settings) -> tuple[Object, Object]:
    """Metadata and spec of the server's pods, with the user's template over them; raises TemplateRefused."""
    spec = inputs.server.spec
    labels = names.labels(inputs.server.metadata.name, SERVER)
    annotations = _annotations(inputs)
    metadata = {"labels": labels, **({"annotations": annotations} if annotations else {})}
    pod = _pod(inputs, settings)
    if spec.pod_template is None:
        return metadata, pod
    return template.merged(metadata, pod, spec.pod_template.model_dump(by_alias=True, exclude_none=False, mode="json"))


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
        volumes=container.volumes(inputs),
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

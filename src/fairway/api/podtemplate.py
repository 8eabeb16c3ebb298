"""podTemplate: what a user changes in the server's pods beyond the fields that Fairway has for it."""

from typing import Annotated, Any

from pydantic import Field

from fairway.api.schema import Model

Words = Annotated[dict[str, Annotated[str, Field(max_length=262144)]], Field(max_length=128)]


class PodTemplateMetadata(Model):
    """Labels and annotations of the server's pods."""

    labels: Words | None = None
    """Labels; those that Fairway sets cannot be changed."""
    annotations: Words | None = None
    """Annotations; those of fairway.dev cannot be set."""


class PodTemplate(Model):
    """Merged into the server's pods: objects by field, lists of named things by name, all else replaced."""

    metadata: PodTemplateMetadata | None = None
    """Labels and annotations."""
    spec: dict[str, Any] | None = None
    """A core PodSpec, as far as you want it different: affinity, tolerations, sidecars, init containers, ... The
    container that Fairway makes is called `server`. null takes a default of Fairway's out."""

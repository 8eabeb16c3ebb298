"""Parts that several kinds share: object metadata and environment variables."""

from typing import Annotated

from pydantic import ConfigDict, Field

from fairway.api.schema import Cel, Model


class ObjectMeta(Model):
    """The metadata that Fairway reads; everything else a cluster writes there is kept out of the way."""

    model_config = ConfigDict(extra="ignore")

    name: str
    namespace: str = ""
    uid: str = ""
    generation: int = 0
    resource_version: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    deletion_timestamp: str | None = None


ObjectName = Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")]
Key = Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[-._a-zA-Z0-9]+$")]


class KeySelector(Model):
    """One key of a Secret or ConfigMap in the same namespace."""

    name: ObjectName
    """Name of the object."""
    key: Key
    """Key within the object."""
    optional: bool = False
    """Whether the container starts without it when the object or the key is missing."""


class FieldSelector(Model):
    """A field of the pod itself."""

    field_path: Annotated[
        str,
        Field(
            max_length=512,
            pattern=r"^(metadata\.(name|namespace|uid)|metadata\.(labels|annotations)\['[^']+'\]"
            r"|spec\.(nodeName|serviceAccountName)|status\.(podIP|podIPs|hostIP|hostIPs))$",
        ),
    ]
    """metadata.name, metadata.namespace, metadata.uid, metadata.labels['x'], metadata.annotations['x'], spec.nodeName,
    spec.serviceAccountName, status.podIP, status.podIPs, status.hostIP or status.hostIPs."""


class EnvVarSource(Model):
    """Where an environment variable's value comes from."""

    cel_rules = (
        Cel(
            "[has(self.secretKeyRef), has(self.configMapKeyRef), has(self.fieldRef)].exists_one(x, x)",
            "set exactly one of secretKeyRef, configMapKeyRef and fieldRef",
            lambda source: (
                sum(part is not None for part in (source.secret_key_ref, source.config_map_key_ref, source.field_ref))
                == 1
            ),
        ),
    )

    secret_key_ref: KeySelector | None = None
    """A key of a Secret."""
    config_map_key_ref: KeySelector | None = None
    """A key of a ConfigMap."""
    field_ref: FieldSelector | None = None
    """A field of the pod."""


class EnvVar(Model):
    """One environment variable of the container."""

    cel_rules = (
        Cel(
            "!(has(self.value) && has(self.valueFrom))",
            "value and valueFrom exclude each other",
            lambda var: var.value is None or var.value_from is None,
        ),
    )

    name: Annotated[str, Field(min_length=1, max_length=256, pattern=r"^[ -<>-~]+$")]
    """Name of the variable: printable ASCII without '='."""
    value: Annotated[str, Field(max_length=131072, pattern=r"^[^\x00]*$")] | None = None
    """The value; $(NAME) is a variable given earlier, $$ a dollar sign. Secrets belong into a Secret; see valueFrom."""
    value_from: EnvVarSource | None = None
    """Takes the value from a Secret, a ConfigMap or the pod itself."""


class ObjectReference(Model):
    """An object of a known kind in the same namespace."""

    name: ObjectName
    """Name of the object."""

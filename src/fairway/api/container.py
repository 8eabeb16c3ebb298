"""What a user says of a container: where its environment comes from, resources, volumes, probes, security."""

from typing import Annotated, Literal

from pydantic import Field

from fairway.api.meta import Key, ObjectName
from fairway.api.quantity import Quantity
from fairway.api.schema import Cel, ListMap, ListSet, Model

Port = Annotated[int, Field(ge=1, le=65535)]
_PORT_NAME = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
Text = Annotated[str, Field(max_length=32768, pattern=r"^[^\x00]*$")]
VolumeName = Annotated[str, Field(min_length=1, max_length=63, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")]
MountPath = Annotated[str, Field(min_length=2, max_length=1024, pattern=r"^/[^:\x00]+$")]
RelativePath = Annotated[
    str, Field(min_length=1, max_length=1024, pattern=r"^[^/.:\x00][^:\x00]*$|^\.[^./:\x00][^:\x00]*$")
]
HttpPath = Annotated[str, Field(min_length=1, max_length=1024, pattern=r"^/[!-~]*$")]
ResourceName = Annotated[
    str, Field(min_length=1, max_length=253, pattern=r"^[a-zA-Z0-9]([-a-zA-Z0-9_./]*[a-zA-Z0-9])?$")
]
UserId = Annotated[int, Field(ge=0, le=2147483647)]
Seconds = Annotated[int, Field(ge=1, le=86400)]
Count = Annotated[int, Field(ge=1, le=10000)]
PullPolicy = Literal["Always", "IfNotPresent", "Never"]

RESERVED_VOLUMES = ("config", "package", "package-ca", "runconfig", "secrets", "tools")
"""Names of volumes that Fairway makes; `tmp` is one too, and a user's own takes its place."""


def _one_of(fields: dict[str, str], what: str) -> Cel:
    """Exactly one of several optional members, by camelCase name and attribute."""
    listed = ", ".join(fields)
    return Cel(
        f"[{', '.join(f'has(self.{name})' for name in fields)}].exists_one(x, x)",
        f"{what}: set exactly one of {listed}",
        lambda model: sum(getattr(model, attribute) is not None for attribute in fields.values()) == 1,
    )


class OptionalReference(Model):
    """A Secret or ConfigMap as a whole, in the same namespace."""

    name: ObjectName
    """Name of the object."""
    optional: bool = False
    """Whether the container starts without it."""


class EnvFromSource(Model):
    """Every key of a Secret or ConfigMap as an environment variable."""

    cel_rules = (_one_of({"secretRef": "secret_ref", "configMapRef": "config_map_ref"}, "envFrom"),)

    prefix: Annotated[str, Field(max_length=128, pattern=r"^[ -<>-~]*$")] | None = None
    """Goes before each key."""
    secret_ref: OptionalReference | None = None
    """The Secret."""
    config_map_ref: OptionalReference | None = None
    """The ConfigMap."""


class Resources(Model):
    """What the container asks of its node, and what it may use at most."""

    requests: Annotated[dict[ResourceName, Quantity], Field(max_length=32)] | None = None
    """Reserved for it; what is not named here keeps the default of the transport."""
    limits: Annotated[dict[ResourceName, Quantity], Field(max_length=32)] | None = None
    """More than this it never gets."""


class KeyToPath(Model):
    """One key of a Secret or ConfigMap as a file."""

    key: Key
    """Key within the object."""
    path: RelativePath
    """The file, relative to the mount."""
    mode: Annotated[int, Field(ge=0, le=511)] | None = None
    """Permission bits of the file, in decimal."""


class EmptyDir(Model):
    """A directory that lives as long as the pod."""

    medium: Literal["", "Memory"] | None = None
    """Memory keeps it in RAM."""
    size_limit: Quantity | None = None
    """What it may hold at most."""


class ConfigMapVolume(Model):
    """The keys of a ConfigMap as files; they follow the object when it changes."""

    name: ObjectName
    """Name of the ConfigMap."""
    items: Annotated[list[KeyToPath], Field(max_length=256)] | None = None
    """The keys to mount, and where; unset means all."""
    default_mode: Annotated[int, Field(ge=0, le=511)] | None = None
    """Permission bits of the files, in decimal."""
    optional: bool = False
    """Whether the pod starts without it."""


class SecretVolume(Model):
    """The keys of a Secret as files; they follow the object when it changes."""

    secret_name: ObjectName
    """Name of the Secret."""
    items: Annotated[list[KeyToPath], Field(max_length=256)] | None = None
    """The keys to mount, and where; unset means all."""
    default_mode: Annotated[int, Field(ge=0, le=511)] | None = None
    """Permission bits of the files, in decimal."""
    optional: bool = False
    """Whether the pod starts without it."""


class ClaimVolume(Model):
    """A PersistentVolumeClaim."""

    claim_name: ObjectName
    """Name of the claim."""
    read_only: bool = False
    """Whether every mount of it is read-only."""


class HostPathVolume(Model):
    """A path of the node. The restricted Pod Security standard forbids it."""

    path: Annotated[str, Field(min_length=1, max_length=1024, pattern=r"^/[^\x00]*$")]
    """The path on the node."""
    type: (
        Literal["", "DirectoryOrCreate", "Directory", "FileOrCreate", "File", "Socket", "CharDevice", "BlockDevice"]
        | None
    ) = None
    """What must be there."""


class Volume(Model):
    """A directory that containers of the pod can mount. Kinds of volume that are not here go into podTemplate."""

    cel_rules = (
        _one_of(
            {
                "emptyDir": "empty_dir",
                "configMap": "config_map",
                "secret": "secret",
                "persistentVolumeClaim": "persistent_volume_claim",
                "hostPath": "host_path",
            },
            "volume",
        ),
        Cel(
            f"!(self.name in {list(RESERVED_VOLUMES)})",
            f"volume names {', '.join(RESERVED_VOLUMES)} belong to Fairway",
            lambda volume: volume.name not in RESERVED_VOLUMES,
        ),
    )

    name: VolumeName
    """Name that volumeMounts refer to. `tmp` replaces the volume that Fairway mounts at /tmp."""
    empty_dir: EmptyDir | None = None
    """A directory that lives as long as the pod."""
    config_map: ConfigMapVolume | None = None
    """The keys of a ConfigMap as files."""
    secret: SecretVolume | None = None
    """The keys of a Secret as files."""
    persistent_volume_claim: ClaimVolume | None = None
    """A claim on storage that outlives the pod."""
    host_path: HostPathVolume | None = None
    """A path of the node."""


class VolumeMount(Model):
    """Where the server's container sees a volume."""

    cel_rules = (
        Cel(
            "!(has(self.subPath) && has(self.subPathExpr))",
            "subPath and subPathExpr exclude each other",
            lambda mount: mount.sub_path is None or mount.sub_path_expr is None,
        ),
    )

    name: VolumeName
    """Name of the volume."""
    mount_path: MountPath
    """Path in the container."""
    read_only: bool = False
    """Whether the container may only read."""
    sub_path: RelativePath | None = None
    """A path within the volume instead of its root. Files mounted this way do not follow their object."""
    sub_path_expr: RelativePath | None = None
    """The same, with $(NAME) standing for an environment variable."""


class Capabilities(Model):
    """Linux capabilities."""

    add: Annotated[list[Annotated[str, Field(max_length=64)]], Field(max_length=64)] | None = None
    """Given to the container; restricted admits only NET_BIND_SERVICE."""
    drop: Annotated[list[Annotated[str, Field(max_length=64)]], Field(max_length=64)] | None = None
    """Taken from the container; default ALL."""


class SeccompProfile(Model):
    """Which system calls are allowed."""

    cel_rules = (
        Cel(
            "(self.type == 'Localhost') == has(self.localhostProfile)",
            "localhostProfile goes with type Localhost, and only with it",
            lambda profile: (profile.type == "Localhost") == (profile.localhost_profile is not None),
        ),
    )

    type: Literal["RuntimeDefault", "Localhost", "Unconfined"]
    """RuntimeDefault unless you say otherwise."""
    localhost_profile: RelativePath | None = None
    """The profile's file on the node."""


class SeLinuxOptions(Model):
    """The SELinux label of the container."""

    user: Annotated[str, Field(max_length=256)] | None = None
    """User part."""
    role: Annotated[str, Field(max_length=256)] | None = None
    """Role part."""
    type: Annotated[str, Field(max_length=256)] | None = None
    """Type part."""
    level: Annotated[str, Field(max_length=256)] | None = None
    """Level part."""


class SecurityContext(Model):
    """Security of the server's container. What is not set stays as the restricted standard wants it."""

    cel_rules = (
        Cel(
            "!has(self.privileged) || !self.privileged || !has(self.allowPrivilegeEscalation) "
            "|| self.allowPrivilegeEscalation",
            "a privileged container can escalate its privileges: leave allowPrivilegeEscalation out",
            lambda context: not context.privileged or context.allow_privilege_escalation is not False,
        ),
        Cel(
            "!has(self.runAsUser) || self.runAsUser != 0 || !has(self.runAsNonRoot) || !self.runAsNonRoot",
            "runAsUser 0 is root, and runAsNonRoot forbids that",
            lambda context: context.run_as_user != 0 or not context.run_as_non_root,
        ),
    )

    allow_privilege_escalation: bool | None = None
    """Whether a process may gain more privileges than its parent; default false."""
    capabilities: Capabilities | None = None
    """Linux capabilities; default: none."""
    privileged: bool | None = None
    """Root on the node; default false."""
    read_only_root_filesystem: bool | None = None
    """Whether the image's files are read-only; default true, with /tmp writable."""
    run_as_user: UserId | None = None
    """User id of the process; default 65532. 0 is root, and breaks the restricted standard."""
    run_as_group: UserId | None = None
    """Group id of the process; default 65532."""
    run_as_non_root: bool | None = None
    """Whether the node refuses to run it as root; default true."""
    seccomp_profile: SeccompProfile | None = None
    """Which system calls are allowed; default RuntimeDefault."""
    se_linux_options: SeLinuxOptions | None = None
    """The SELinux label."""


ProbePort = Port | Annotated[str, Field(min_length=1, max_length=15, pattern=_PORT_NAME)]
_PORT_IS_ONE = Cel(
    "!has(self.port) || (type(self.port) == int ? self.port >= 1 && self.port <= 65535 "
    f": self.port.size() <= 15 && self.port.matches('{_PORT_NAME}'))",
    "port: a number from 1 to 65535, or the name of a port of the container",
    lambda _: True,  # the model's own types say it
)


class HttpGet(Model):
    """An HTTP request that succeeds with a status from 200 to 399."""

    cel_rules = (_PORT_IS_ONE,)

    path: HttpPath = "/"
    """Path of the request."""
    port: ProbePort | None = None
    """Number or name of the port; default: spec.port."""
    scheme: Literal["HTTP", "HTTPS"] = "HTTP"
    """How to ask."""


class TcpSocket(Model):
    """A TCP connection that can be opened."""

    cel_rules = (_PORT_IS_ONE,)

    port: ProbePort | None = None
    """Number or name of the port; default: spec.port."""


class Exec(Model):
    """A command in the container that ends with 0."""

    command: Annotated[list[Text], Field(min_length=1, max_length=256)]
    """The command and its arguments; no shell."""


class Grpc(Model):
    """The gRPC health check."""

    port: Port
    """Port of the service."""
    service: Annotated[str, Field(max_length=253)] | None = None
    """Name of the service to ask for."""


class Probe(Model):
    """How the node finds out about the container. Without httpGet, exec or grpc it opens a TCP connection."""

    cel_rules = (
        Cel(
            "[has(self.httpGet), has(self.tcpSocket), has(self.exec), has(self.grpc)].filter(x, x).size() <= 1",
            "probe: set at most one of httpGet, tcpSocket, exec, grpc",
            lambda probe: sum(p is not None for p in (probe.http_get, probe.tcp_socket, probe.exec, probe.grpc)) <= 1,
        ),
    )

    http_get: HttpGet | None = None
    """Ask over HTTP."""
    tcp_socket: TcpSocket | None = None
    """Open a connection."""
    exec: Exec | None = None
    """Run a command."""
    grpc: Grpc | None = None
    """Ask over gRPC."""
    initial_delay_seconds: Annotated[int, Field(ge=0, le=86400)] | None = None
    """Wait so long before the first try."""
    period_seconds: Seconds | None = None
    """Time between tries."""
    timeout_seconds: Seconds | None = None
    """Time for one try."""
    success_threshold: Count | None = None
    """Successes in a row that count; liveness and startup want 1."""
    failure_threshold: Count | None = None
    """Failures in a row that count."""


class Probes(Model):
    """The node's probes of the server's container."""

    cel_rules = (
        Cel(
            "[has(self.liveness) && has(self.liveness.successThreshold) ? self.liveness.successThreshold : 1, "
            "has(self.startup) && has(self.startup.successThreshold) ? self.startup.successThreshold : 1]"
            ".all(n, n == 1)",
            "successThreshold of liveness and startup must be 1",
            lambda probes: all(
                probe is None or probe.success_threshold in (None, 1) for probe in (probes.liveness, probes.startup)
            ),
        ),
    )

    liveness: Probe | None = None
    """Restarts the container when it fails; default: none."""
    readiness: Probe | None = None
    """Takes the pod out of its Service while it fails; default: a TCP connection to spec.port, every second."""
    startup: Probe | None = None
    """Holds the other two back until it succeeds; default: none."""


EnvFrom = Annotated[list[EnvFromSource], Field(max_length=64)]
Volumes = Annotated[list[Volume], ListMap(("name",)), Field(max_length=64)]
VolumeMounts = Annotated[list[VolumeMount], ListMap(("mountPath",)), Field(max_length=64)]
Arguments = Annotated[list[Text], Field(max_length=512)]
Config = Annotated[
    dict[
        Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[-_a-zA-Z0-9][-._a-zA-Z0-9]*$")],
        Annotated[str, Field(max_length=262144)],
    ],
    Field(max_length=256),
]
PullSecrets = Annotated[list[ObjectName], ListSet(), Field(max_length=16)]

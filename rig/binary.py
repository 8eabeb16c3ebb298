"""The programs of a rig: found in RIG_BIN or the cache, else built once from Go modules."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rig.errors import RigError
from rig.gomodule import GoModule
from rig.progress import Progress

MULTI_CALL = "kube"
PAUSE = "pause"
NETWORK_POLICY = "netpol"
COMPONENTS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy")
KUBERNETES = GoModule(
    source=Path(__file__).parent / "kube",
    title="Kubernetes",
    main_dependency="k8s.io/kubernetes",
    programs=(MULTI_CALL, PAUSE),
    cost="about 5 minutes on two cores, 4 GB of disk",
    stamp_version_into=("k8s.io/component-base/version", "k8s.io/client-go/pkg/version"),
)
POLICY_ENFORCER = GoModule(
    source=Path(__file__).parent / "netpol",
    title="the enforcement of NetworkPolicy",
    main_dependency="github.com/cloudnativelabs/kube-router/v2",
    programs=(NETWORK_POLICY,),
    cost="a minute or two",
)


@dataclass(frozen=True)
class Binaries:
    """A directory with the multi-call binary, or with one binary for each component."""

    directory: Path

    def of(self, component: str) -> Path:
        """The file to run as `component`; what it is called by (argv[0]) decides what it is."""
        alone = self.directory / component
        return alone if alone.exists() else self.directory / MULTI_CALL

    def command(self, component: str) -> list[str]:
        """The same as the beginning of a command line, where argv[0] cannot be chosen."""
        file = self.of(component)
        return [str(file), component] if file.name == MULTI_CALL else [str(file)]

    @property
    def pause(self) -> Path:
        return self.directory / PAUSE

    def missing(self, components: Sequence[str] = COMPONENTS) -> list[str]:
        return [name for name in components if not os.access(self.of(name), os.X_OK)]


def kubernetes_version() -> str:
    return KUBERNETES.version


def given_binaries(environ: Mapping[str, str] = os.environ) -> Binaries | None:
    """What RIG_BIN names, which must be complete; None where it is not set."""
    directory = environ.get("RIG_BIN")
    if not directory:
        return None
    binaries = Binaries(Path(directory).absolute())
    missing = binaries.missing()
    if missing:
        raise RigError(
            f"RIG_BIN={directory} lacks {', '.join(missing)}",
            fix="put one binary for each there, or the one called `kube`; or unset RIG_BIN",
        )
    return binaries


def ensure_binaries(*, progress: Progress, environ: Mapping[str, str] = os.environ) -> Binaries:
    """The Kubernetes binaries, built now if need be."""
    return given_binaries(environ) or Binaries(KUBERNETES.ensure(progress=progress, environ=environ))


def ensure_policy_enforcer(*, progress: Progress, environ: Mapping[str, str] = os.environ) -> Path:
    """The program that enforces network policies, built now if need be."""
    given = given_binaries(environ)
    if given and os.access(given.directory / NETWORK_POLICY, os.X_OK):
        return given.directory / NETWORK_POLICY
    return POLICY_ENFORCER.ensure(progress=progress, environ=environ) / NETWORK_POLICY

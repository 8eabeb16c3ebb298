"""What an operator is told about the place it runs in; an object's own fields win over it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Settings:
    """Operator-wide settings that shape the generated objects."""

    image: str
    """The Fairway image: proxy and inline-tools server run from it."""
    image_pull_policy: str = "IfNotPresent"
    pull_host: str = ""
    """Registry that images are pulled from instead of the one they name."""
    pull_secrets: tuple[str, ...] = ()
    """Secrets with registry credentials that every namespace is expected to have."""
    provisioned_registry: str = ""
    """Registry that came with the operator, for servers that ask for it."""
    provisioned_pull_secret: str = ""
    """Secret with credentials for it, expected in the server's namespace."""
    api_server: tuple[str, ...] = ()
    """Addresses of the cluster's API server, as networks: kept out of what servers may reach."""
    ingress_class: str = ""
    ingress_host: str = ""
    ingress_entrypoints: str = "web"
    """Of Traefik: which of its entry points an Ingress is for."""
    ingress_tls: bool = False
    ingress_readiness: str = "strict"
    gateway: str = ""
    """namespace/name of the Gateway for routes that name none."""
    publishes: bool = True
    """Whether this place has nodes, load balancers, ingress controllers and autoscalers at all."""
    run_as_user: int | None = 65532
    """User of generated pods; None where the platform chooses one, as OpenShift does."""

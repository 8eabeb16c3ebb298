"""How many copies of a server run when nobody says so: autoscaling."""

from typing import Annotated, Any

from pydantic import Field

from fairway.api.schema import Cel, Model

Utilization = Annotated[int, Field(ge=0, le=1000)]


class Autoscaling(Model):
    """A HorizontalPodAutoscaler for the server; `replicas` then counts for nothing."""

    cel_rules = (
        Cel(
            "self.minReplicas <= self.maxReplicas",
            "minReplicas is above maxReplicas",
            lambda scaling: scaling.min_replicas <= scaling.max_replicas,
        ),
    )

    min_replicas: Annotated[int, Field(ge=1, le=1000)] = 1
    """Never fewer than these."""
    max_replicas: Annotated[int, Field(ge=1, le=1000)]
    """Never more than these."""
    target_cpu_utilization: Utilization = Field(0, alias="targetCPUUtilization")
    """Percent of the requested CPU to aim at; 0: not by CPU. With no target and no metrics at all: 80."""
    target_memory_utilization: Utilization = 0
    """Percent of the requested memory to aim at; 0: not by memory."""
    metrics: Annotated[list[dict[str, Any]], Field(max_length=16)] | None = None
    """More metrics, as autoscaling/v2 has them."""
    behavior: dict[str, Any] | None = None
    """How fast to scale, as autoscaling/v2 has it."""

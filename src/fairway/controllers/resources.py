"""The kinds that our controllers read and write, as resources of the Kubernetes API."""

from collections.abc import Mapping

from fairway.api import mcpserver, mcptoolconfig
from fairway.api.names import GROUP, VERSION
from fairway.controllers.mcpserver.needs import Kind
from fairway.kube.resource import (
    CONFIG_MAP,
    DEPLOYMENT,
    HORIZONTAL_POD_AUTOSCALER,
    HTTP_ROUTE,
    INGRESS,
    NETWORK_POLICY,
    POD,
    POD_DISRUPTION_BUDGET,
    ROLE,
    ROLE_BINDING,
    SECRET,
    SERVICE,
    SERVICE_ACCOUNT,
    SERVICE_MONITOR,
    STATEFUL_SET,
    Catalogue,
    Resource,
)

MCP_SERVER = Resource(GROUP, VERSION, mcpserver.KIND, mcpserver.PLURAL)
MCP_TOOL_CONFIG = Resource(GROUP, VERSION, mcptoolconfig.KIND, mcptoolconfig.PLURAL)

OURS = (MCP_SERVER, MCP_TOOL_CONFIG)
OPTIONAL = (HTTP_ROUTE, SERVICE_MONITOR)
"""Kinds that a cluster may not have; nothing is made of them then."""
CHILDREN = (
    SERVICE_ACCOUNT,
    CONFIG_MAP,
    SERVICE,
    NETWORK_POLICY,
    ROLE,
    ROLE_BINDING,
    DEPLOYMENT,
    STATEFUL_SET,
    HORIZONTAL_POD_AUTOSCALER,
    POD_DISRUPTION_BUDGET,
    INGRESS,
    *OPTIONAL,
)
"""Kinds of which we make objects."""
USERS_OBJECTS: Mapping[Kind, Resource] = {"Secret": SECRET.metadata, "ConfigMap": CONFIG_MAP.metadata}
"""What users keep for their servers: watched without content."""
MADE_ONCE = (SECRET,)
"""Kinds of which we make objects that are never written again."""
CATALOGUE = Catalogue((*OURS, *CHILDREN, *MADE_ONCE, POD))

"""What a server may reach: a permission profile, built in or from a ConfigMap."""

from typing import Literal

from fairway.api.meta import Key, ObjectName
from fairway.api.schema import Cel, Model

BUILTIN = ("none", "network")


class PermissionProfile(Model):
    """What the server's pods may connect to, enforced by a NetworkPolicy where the cluster's network enforces those."""

    cel_rules = (
        Cel(
            "self.type != 'builtin' || self.name in ['none', 'network']",
            "the built-in profiles are none and network",
            lambda profile: profile.type != "builtin" or profile.name in BUILTIN,
        ),
        Cel(
            "(self.type == 'configMap') == has(self.key)",
            "key goes with type configMap, and only with it",
            lambda profile: (profile.type == "configMap") == (profile.key is not None),
        ),
    )

    type: Literal["builtin", "configMap"] = "builtin"
    """builtin: one that Fairway knows. configMap: a JSON document in ToolHive's format."""
    name: ObjectName
    """`none` (connects to nothing), `network` (to everything but the cloud's metadata address and the cluster's API
    server), or the name of the ConfigMap."""
    key: Key | None = None
    """The key of the ConfigMap that holds the document."""

"""An issuer of tokens for this machine: servers that ask for it by name let in whoever can read the state directory.

An MCPServer says so by `auth.oidc.configMap.name: fairway-local-issuer`. Local mode makes that ConfigMap where nobody
else does, with the public keys in it, and writes a token for the user. On a cluster nobody makes it, so that the same
manifest lets nobody in there until somebody says whom to trust.
"""

import json
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairway.local.volumes import replace_file

if TYPE_CHECKING:
    from joserfc.jwk import ECKey

CONFIG_MAP = "fairway-local-issuer"
ISSUER = "http://issuer.fairway.local"
AUDIENCE = "fairway-local"
SUBJECT = "you"
GOOD_FOR = 30 * 24 * 3600
"""Seconds; a new token is written at every start."""
_ALGORITHM = "ES256"

Key = tuple[str, str, str]
Obj = Mapping[str, Any]


def asks_for_it(server: Obj) -> bool:
    """Whether an MCPServer trusts the issuer of this machine."""
    oidc = ((server.get("spec") or {}).get("auth") or {}).get("oidc") or {}
    return bool((oidc.get("configMap") or {}).get("name") == CONFIG_MAP)


def bearer_of(token_file: Path) -> dict[str, str]:
    """The header that carries the token; nothing where there is none."""
    try:
        return {"Authorization": f"Bearer {token_file.read_text().strip()}"}
    except OSError:
        return {}


class LocalIssuer:
    """Keeps its key in the state directory. Costs nothing until a server asks for it."""

    def __init__(self, directory: Path) -> None:
        self._key_file = directory / "issuer.pem"
        self.token_file = directory / "token"
        self._document = ""

    def added(self, objects: Mapping[Key, Obj]) -> dict[Key, Obj]:
        """The ConfigMaps that these objects of the user ask for and do not bring."""
        namespaces = {key[1] for key, obj in objects.items() if key[0] == "MCPServer" and asks_for_it(obj)}
        missing = [name for name in sorted(namespaces) if ("ConfigMap", name, CONFIG_MAP) not in objects]
        return {("ConfigMap", namespace, CONFIG_MAP): self._config_map(namespace) for namespace in missing}

    def _config_map(self, namespace: str) -> Obj:
        if not self._document:
            self._document = self._begin()
        return {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": CONFIG_MAP, "namespace": namespace},
            "data": {"oidc.json": self._document},
        }

    def _begin(self) -> str:
        """Reads or makes the key, writes a token, and returns what servers have to know."""
        from joserfc import jwt

        key = self._key()
        now = int(time.time())
        public = {**key.as_dict(private=False), "kid": key.thumbprint(), "alg": _ALGORITHM, "use": "sig"}
        claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": SUBJECT, "iat": now, "exp": now + GOOD_FOR}
        token = jwt.encode({"alg": _ALGORITHM, "kid": key.thumbprint()}, claims, key)
        self.token_file.unlink(missing_ok=True)
        replace_file(self.token_file, f"{token}\n".encode(), mode=0o600)
        document = {"issuer": ISSUER, "audiences": [AUDIENCE], "jwks": json.dumps({"keys": [public]})}
        return json.dumps(document, sort_keys=True)

    def _key(self) -> "ECKey":
        from joserfc.jwk import ECKey

        with suppress(OSError, ValueError):
            return ECKey.import_key(self._key_file.read_bytes())
        key = ECKey.generate_key("P-256", private=True)
        self._key_file.unlink(missing_ok=True)
        descriptor = os.open(self._key_file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(key.as_pem(private=True))
        return key

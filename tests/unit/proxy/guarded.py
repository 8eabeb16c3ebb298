"""What a guarded route needs around it in tests: an issuer of tokens, its keys in a file, parts of policies."""

import json
import time
from pathlib import Path
from typing import Any

from fairway.api.policy import Audit, Authentication, Authorization, Issuer, Policy
from tests.unit.proxy.middleware import forge

RESOURCE = forge.RESOURCE
PERMIT_ALL = Authorization(policies=("permit(principal, action, resource);",))


class Idp:
    """Issues tokens and publishes its keys in a file."""

    def __init__(self, directory: Path) -> None:
        self.file = directory / "jwks.json"
        self.key = "rsa"
        self.algorithm = "RS256"
        self.publish("rsa")

    def publish(self, *keys: str) -> None:
        after = self.file.with_suffix(".new")
        after.write_text(json.dumps({"keys": [forge.jwk(key, key, use="sig") for key in keys]}))
        after.replace(self.file)

    def token(self, subject: str = "alice", **changed: Any) -> str:
        now = int(time.time())
        claims = forge.claims(**{"sub": subject, "iat": now - 5, "exp": now + 600, **changed})
        return forge.token(claims, algorithm=self.algorithm, key=forge.private(self.key), kid=self.key)

    def headers(self, subject: str = "alice", **changed: Any) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token(subject, **changed)}"}

    def authentication(self, **more: Any) -> Authentication:
        issuer = Issuer(issuer=forge.ISSUER, jwks_file=str(self.file), **more.pop("issuer", {}))
        return Authentication(resources=(RESOURCE,), issuers=(issuer,), **more)


def cedar(*policies: str) -> Authorization:
    return Authorization(policies=policies)


def permit(action: str, resource: str, subject: str = "") -> str:
    principal = f'principal == Client::"{subject}"' if subject else "principal"
    return f'permit({principal}, action == Action::"{action}", resource == {resource});'


def audited(path: Path, **more: Any) -> Audit:
    return Audit(file=str(path), **more)


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


__all__ = ["PERMIT_ALL", "RESOURCE", "Idp", "Policy", "audited", "cedar", "lines", "permit"]

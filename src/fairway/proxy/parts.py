"""Parts of policies that outlive a reload and are shared by all routes that configure them alike.

The keys of an issuer, audit logs, the way to the API server: each with work of its own in the background, and each
there exactly as long as a policy that is in force wants it.
"""

import asyncio
import time
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fairway.api import policy as contract
from fairway.proxy.middleware.audit import AuditLog
from fairway.proxy.middleware.seal import Key, ephemeral_key

if TYPE_CHECKING:
    from fairway.proxy.middleware.authentication import Review
    from fairway.proxy.middleware.jwks import KeyRing
    from fairway.proxy.tokenreview import TokenReviewer


class UnusablePolicy(ValueError):
    """The policy cannot be put into force; the message says what to mend."""


@dataclass(slots=True)
class Parts:
    """One for each process. Must be made and used on its loop."""

    _rings: dict[contract.Issuer, tuple["KeyRing", asyncio.Task[None]]] = field(default_factory=dict)
    _logs: dict[contract.Audit, tuple[AuditLog, asyncio.Task[None]]] = field(default_factory=dict)
    _reviewer: "TokenReviewer | None" = None
    _key: Key | None = None
    _ending: set[asyncio.Task[None]] = field(default_factory=set)

    def ring(self, issuer: contract.Issuer) -> "KeyRing":
        """The keys of an issuer, which are being fetched from now on."""
        found = self._rings.get(issuer)
        if found is None:
            ring = _ring(issuer)
            found = self._rings[issuer] = ring, asyncio.create_task(ring.run(), name=f"keys of {issuer.issuer}")
        return found[0]

    def log(self, config: contract.Audit) -> AuditLog:
        found = self._logs.get(config)
        if found is None:
            log = AuditLog(config)
            found = self._logs[config] = log, asyncio.create_task(log.run(), name="audit")
        return found[0]

    def review(self) -> "Review":
        if self._reviewer is None:
            # only who asks the API server pays for what talks to it
            from fairway.kube.config import AccessError, load_access
            from fairway.proxy.tokenreview import TokenReviewer

            try:
                self._reviewer = TokenReviewer(load_access())
            except AccessError as error:
                raise UnusablePolicy(f"authentication.tokenReview: no Kubernetes API server to ask: {error}") from None
        return self._reviewer

    def own_key(self) -> Key:
        """For sessions that nobody gave a key to: they are good in this process alone."""
        self._key = self._key or ephemeral_key()
        return self._key

    def keep(self, policies: Collection[contract.Policy]) -> None:
        """Lets go of what none of these wants."""
        authentications = [policy.authentication for policy in policies if policy.authentication is not None]
        issuers = {issuer for authentication in authentications for issuer in authentication.issuers}
        for issuer in self._rings.keys() - issuers:
            self._rings.pop(issuer)[1].cancel()  # who still waits for its keys fetches them himself
        for config in self._logs.keys() - {policy.audit for policy in policies}:
            log, task = self._logs.pop(config)
            task.cancel()
            ending = asyncio.create_task(log.aclose(), name="end of an audit log")
            self._ending.add(ending)
            ending.add_done_callback(self._ending.discard)
        if self._reviewer is not None and not any(each.token_review for each in authentications):
            self._ending.add(closing := asyncio.create_task(self._reviewer.aclose()))
            closing.add_done_callback(self._ending.discard)
            self._reviewer = None

    async def aclose(self) -> None:
        """Ends everything; audit lines that wait are written."""
        self.keep(())
        await asyncio.gather(*self._ending, return_exceptions=True)


def _ring(issuer: contract.Issuer) -> "KeyRing":
    # cryptography costs memory, so who asks for no tokens does not load it
    from fairway.proxy.middleware.jwks import key_ring
    from fairway.proxy.middleware.ssrf import Forbidden, GuardedFetch

    token_for = (issuer.jwks_url or issuer.issuer) if issuer.fetch.token_file is not None else ""
    try:
        return key_ring(issuer, fetch=GuardedFetch(issuer.fetch, token_for=token_for), clock=time.monotonic)
    except Forbidden as error:
        raise UnusablePolicy(f"authentication.issuers: {issuer.issuer}: {error}") from None

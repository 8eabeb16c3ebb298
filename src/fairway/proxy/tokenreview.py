"""Asks the Kubernetes API server about tokens: the only thing that a proxy ever asks it besides endpoints."""

import json
from collections.abc import Mapping
from typing import Any, Final

import fairway
from fairway.kube.config import ClusterAccess
from fairway.kube.errors import KubeError
from fairway.kube.transport import Transport
from fairway.proxy.middleware.authentication import ReviewFailed

PATH: Final = "/apis/authentication.k8s.io/v1/tokenreviews"


class TokenReviewer:
    """A `Review` for the authenticator."""

    def __init__(self, access: ClusterAccess) -> None:
        self._transport = Transport(access, user_agent=f"fairway-proxy/{fairway.__version__}", connections=8)

    async def __call__(self, token: str, audiences: tuple[str, ...]) -> Mapping[str, Any]:
        review = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": {"token": token, "audiences": list(audiences)},
        }
        try:
            answer = await self._transport.request(
                "POST", PATH, body=json.dumps(review).encode(), content_type="application/json"
            )
            status = json.loads(answer.body).get("status")
        except KubeError as error:
            raise ReviewFailed(str(error)) from None
        except ValueError:
            raise ReviewFailed("the API server's answer is not JSON") from None
        if not isinstance(status, dict):
            raise ReviewFailed("the API server's answer has no status")
        return status

    async def aclose(self) -> None:
        await self._transport.close()

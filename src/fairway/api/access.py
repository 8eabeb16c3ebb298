"""Who may come in and what they may do: OpenID Connect, and policies in Cedar."""

from typing import Annotated, Literal

from pydantic import Field

from fairway.api.meta import Key, ObjectName
from fairway.api.policy import Algorithm
from fairway.api.schema import Cel, ListSet, Model
from fairway.api.source import CaBundle, SecretKey

Url = Annotated[str, Field(min_length=9, max_length=2048, pattern=r"^https?://[!-~]+$")]
Word = Annotated[str, Field(min_length=1, max_length=1024, pattern=r"^[^\x00-\x1f\x7f]+$")]
Scope = Annotated[str, Field(min_length=1, max_length=256, pattern=r"^[!#-\[\]-~]+$")]
Document = Annotated[str, Field(min_length=1, max_length=262144)]

OIDC_KEY = "oidc.json"
POLICIES_KEY = "policies.cedar"


class ConfigMapKey(Model):
    """One key of a ConfigMap in the same namespace."""

    name: ObjectName
    """Name of the ConfigMap."""
    key: Key | None = None
    """Key within it."""


class Issuer(Model):
    """Who signs the tokens, and where its keys are. With no place given, its discovery document says where."""

    cel_rules = (
        Cel(
            "[has(self.jwks), has(self.jwksUrl), has(self.sharedSecretRef)].filter(x, x).size() <= 1",
            "set at most one of jwks, jwksUrl and sharedSecretRef",
            lambda issuer: (
                sum(part is not None for part in (issuer.jwks, issuer.jwks_url, issuer.shared_secret_ref)) <= 1
            ),
        ),
        Cel(
            "has(self.allowHTTP) && self.allowHTTP || ("
            "!(has(self.jwksUrl) && self.jwksUrl.startsWith('http:')) && "
            "(has(self.jwks) || has(self.jwksUrl) || has(self.sharedSecretRef) || !self.issuer.startsWith('http:')))",
            "keys are fetched over https, unless allowHTTP is true",
            lambda issuer: issuer.allow_http or not issuer.fetched_from.startswith("http:"),
        ),
        Cel(
            "!has(self.algorithms) || self.algorithms.all(a, a.startsWith('HS') == has(self.sharedSecretRef))",
            "algorithms: HS256, HS384 and HS512 go with sharedSecretRef, all others without",
            lambda issuer: all(
                name.startswith("HS") == (issuer.shared_secret_ref is not None) for name in issuer.algorithms or ()
            ),
        ),
    )

    issuer: Url
    """Who signs; tokens must name it character by character."""
    audiences: Annotated[list[Word], ListSet(), Field(max_length=32)] | None = None
    """A token must be for one of these; default: the URLs of this server."""
    jwks_url: Url | None = None
    """Where its keys are."""
    jwks: Document | None = None
    """The keys themselves: a JSON Web Key Set."""
    shared_secret_ref: SecretKey | None = None
    """A secret of at least 32 bytes that tokens are signed with, instead of keys."""
    ca_bundle_ref: CaBundle | None = None
    """Authorities that vouch for its https, instead of the well-known ones."""
    algorithms: Annotated[list[Algorithm], ListSet(), Field(max_length=16)] | None = None
    """Signatures that count; default: all that fit its keys."""
    subject_claim: Word = "sub"
    """The claim that says who it is: `Client::"..."` in policies."""
    groups_claim: Word = "groups"
    """The claim that lists groups: `Group::"..."` in policies."""
    prefix: Annotated[str, Field(max_length=256, pattern=r"^[^\x00-\x1f\x7f]*$")] | None = None
    """Goes before subject and groups."""
    allow_private_addresses: bool = False
    """Whether its keys may be at an address of a private network; on a laptop, also at one of the laptop itself."""
    allow_http: bool = Field(False, alias="allowHTTP")
    """Whether its keys may come without encryption."""

    @property
    def fetched_from(self) -> str:
        """Where the keys are fetched from; empty if they are not."""
        if self.jwks is not None or self.shared_secret_ref is not None:
            return ""
        return self.jwks_url or self.issuer


class KubernetesIssuer(Model):
    """The cluster itself: tokens of ServiceAccounts."""

    audiences: Annotated[list[Word], ListSet(), Field(max_length=32)] | None = None
    """A token must be for one of these; default: the URLs of this server."""
    issuer: Url | None = None
    """The cluster's issuer; default: what its API server says."""


class Oidc(Model):
    """Tokens of one issuer."""

    cel_rules = (
        Cel(
            "(self.type == 'inline') == has(self.inline)",
            "inline goes with type inline, and only with it",
            lambda oidc: (oidc.type == "inline") == (oidc.inline is not None),
        ),
        Cel(
            "(self.type == 'configMap') == has(self.configMap)",
            "configMap goes with type configMap, and only with it",
            lambda oidc: (oidc.type == "configMap") == (oidc.config_map is not None),
        ),
        Cel(
            "self.type == 'kubernetes' || !has(self.kubernetes)",
            "kubernetes goes with type kubernetes only",
            lambda oidc: oidc.type == "kubernetes" or oidc.kubernetes is None,
        ),
    )

    type: Literal["kubernetes", "configMap", "inline"]
    """kubernetes: tokens of ServiceAccounts. inline: an issuer described here. configMap: one described elsewhere."""
    kubernetes: KubernetesIssuer | None = None
    """More about type kubernetes."""
    config_map: ConfigMapKey | None = None
    """A ConfigMap whose key (default oidc.json) holds JSON with the fields of `inline`, except those that
    refer to other objects."""
    inline: Issuer | None = None
    """The issuer."""


class Auth(Model):
    """Who may come in."""

    cel_rules = (
        Cel(
            "has(self.oidc) || (has(self.anonymous) && self.anonymous)",
            "auth: set oidc, or say anonymous: true",
            lambda auth: auth.oidc is not None or auth.anonymous,
        ),
    )

    oidc: Oidc | None = None
    """Tokens of an OpenID Connect issuer."""
    anonymous: bool = False
    """Lets requests without a token in, as `Client::"anonymous"`; one that brings a token still needs a good one."""
    resource_url: Url | None = None
    """The URL that tokens are issued for and that clients are told; default: the one in status.url."""
    required_scopes: Annotated[list[Scope], ListSet(), Field(max_length=64)] | None = None
    """Scopes that every token must have."""
    scopes_supported: Annotated[list[Scope], ListSet(), Field(max_length=64)] | None = None
    """Scopes that clients are told of; default: the required ones."""
    authorization_servers: Annotated[list[Url], ListSet(), Field(max_length=16)] | None = None
    """Where clients are sent for a token; default: the issuer."""


class Cedar(Model):
    """Policies in Cedar. The principal is `Client::"<subject>"`, in `Group::"<group>"`; the action
    `Action::"call_tool"` and its like; the resource `Tool::"<name>"`; the context has `arguments` and `claims`."""

    cel_rules = (
        Cel(
            "[has(self.policies), has(self.configMapRef)].exists_one(x, x)",
            "cedar: set exactly one of policies and configMapRef",
            lambda cedar: (cedar.policies is None) != (cedar.config_map_ref is None),
        ),
    )

    policies: Annotated[list[Document], Field(max_length=256)] | None = None
    """The policies. An empty list permits nothing."""
    config_map_ref: ConfigMapKey | None = None
    """A ConfigMap that holds the policies; the default key is policies.cedar. A change is in force at once."""
    entities: Document | None = None
    """Entities in Cedar's JSON: groups of tools, attributes of clients."""


class Authz(Model):
    """What those who came in may do. Nothing that no policy permits is allowed."""

    cedar: Cedar
    """Policies in Cedar."""

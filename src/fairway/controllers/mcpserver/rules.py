"""What a proxy has to enforce: a server's spec, and what it refers to, as the policy of a RunConfig. Pure.

Texts out of ConfigMaps travel in the RunConfig's own ConfigMap, so that a RunConfig and what it rests on change in one
step and under one hash. Secrets are only named: they are mounted into the proxy's pods, and never read here.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pydantic import ValidationError

from fairway.api import access, names, policy, runconfig, traffic
from fairway.api.conditions import Reason
from fairway.api.duration import seconds_of
from fairway.api.mcpserver import MCPServerSpec
from fairway.api.names import ChildNames
from fairway.api.quantity import value_of
from fairway.api.source import CaBundle, RemoteHeader, SecretKey
from fairway.controllers.mcpserver.inputs import Inputs, Missing, Rules, first_error
from fairway.controllers.mcpserver.needs import Contents, Need, explained, missing
from fairway.controllers.settings import Settings

MAX_BYTES: Final = 900_000
"""All texts together: a ConfigMap holds 1 MiB, and a RunConfig is more than its policies."""


class Unusable(Exception):
    """What is referred to does not say what it should; the message names where."""


@dataclass(slots=True)
class _Files:
    """Texts that a proxy reads as files. Named by their content: another text is another RunConfig."""

    directory: str
    texts: dict[str, str] = field(default_factory=dict)

    def put(self, stem: str, text: str) -> str:
        name = f"{stem}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"
        self.texts[name] = text
        return f"{self.directory}/{name}"


def needs_of(spec: MCPServerSpec) -> tuple[Need, ...]:
    """What the rules are made of, of other people's Secrets and ConfigMaps."""
    found: list[Need] = []
    oidc = spec.auth.oidc if spec.auth else None
    if oidc is not None and oidc.config_map is not None:
        found.append(_text(oidc.config_map, access.OIDC_KEY, "auth.oidc.configMap"))
    if oidc is not None and oidc.inline is not None:
        if oidc.inline.ca_bundle_ref is not None:
            found.append(_text(oidc.inline.ca_bundle_ref, "", "auth.oidc.inline.caBundleRef"))
        if oidc.inline.shared_secret_ref is not None:
            found.append(_secret(oidc.inline.shared_secret_ref, "auth.oidc.inline.sharedSecretRef"))
    if spec.authz is not None and spec.authz.cedar.config_map_ref is not None:
        found.append(_text(spec.authz.cedar.config_map_ref, access.POLICIES_KEY, "authz.cedar.configMapRef"))
    for header in _headers(spec):
        if header.value_from is not None:
            found.append(_secret(header.value_from.secret_key_ref, f"headers.set {header.name}"))
    for given in _remote_headers(spec):
        if given.secret_key_ref is not None:
            found.append(_secret(given.secret_key_ref, f"remote.headers {given.name}"))
    if spec.proxy.tls is not None:
        secret = spec.proxy.tls.secret_name
        found += [_secret(SecretKey(name=secret, key=key), "proxy.tls") for key in (names.TLS_CERT, names.TLS_KEY)]
    if spec.upstream_tls is not None and spec.upstream_tls.ca_bundle_ref is not None:
        found.append(_text(spec.upstream_tls.ca_bundle_ref, "", "upstreamTLS.caBundleRef"))
    return tuple(dict.fromkeys(found))


def _text(reference: access.ConfigMapKey | CaBundle, default: str, asked_by: str) -> Need:
    return Need(
        "ConfigMap", reference.name, reference.key or default, False, f"spec.{asked_by}", stays=False, read=True
    )


def _secret(reference: SecretKey, asked_by: str) -> Need:
    return Need("Secret", reference.name, reference.key, False, f"spec.{asked_by}", stays=False)


def _headers(spec: MCPServerSpec) -> Iterable[traffic.SetHeader]:
    return (spec.headers.set if spec.headers else None) or ()


def _remote_headers(spec: MCPServerSpec) -> Iterable[RemoteHeader]:
    return (spec.remote.headers if spec.remote else None) or ()


def rules_of(inputs: Inputs, settings: Settings) -> tuple[Rules | None, Missing | None]:
    """The rules, None if they cannot be told; and what is missing of them, which may be no more than a Secret."""
    spec, namespace = inputs.server.spec, inputs.server.metadata.namespace
    needs = needs_of(spec)
    absent = missing((need for need in needs if need.kind == "ConfigMap"), inputs.contents)
    if absent is not None:
        text = explained(absent, inputs.contents, namespace=namespace)
        return None, Missing(Reason.CONFIG_MAP_MISSING, text, waiting=True)
    try:
        rules = _rules(inputs, settings, needs)
    except Unusable as error:
        return None, Missing(Reason.POLICY_REJECTED, str(error))
    absent = missing((need for need in needs if need.kind == "Secret"), inputs.contents)
    if absent is None:
        return rules, None
    return rules, Missing(Reason.SECRET_MISSING, explained(absent, inputs.contents, namespace=namespace), waiting=True)


def _rules(inputs: Inputs, settings: Settings, needs: tuple[Need, ...]) -> Rules:
    spec, metadata = inputs.server.spec, inputs.server.metadata
    root = settings.proxy_files(metadata.namespace, metadata.name)
    files = _Files(f"{root}/{names.RUNCONFIG_VOLUME}")
    parts: dict[str, Any] = {
        "authentication": _authentication(inputs, settings, files),
        "authorization": _authorization(spec, inputs.contents, files),
        "rate_limit": _rate_limit(spec.rate_limit),
        "audit": _audit(spec.audit),
        "cors": _cors(spec.cors),
        "headers": _set_headers(spec, root),
        "sessions": policy.Sessions(key_files=(_secret_file(root, ChildNames(metadata.name).seal, names.SEAL_KEY),)),
    }
    upstream_tls = _upstream_tls(spec, inputs.contents, files)
    made = policy.Policy(**{name: part for name, part in parts.items() if part is not None})
    size = len(json.dumps([*files.texts.values(), *(made.authorization.policies if made.authorization else ())]))
    if size > MAX_BYTES:
        raise Unusable(f"spec.authz and spec.auth come to {size} bytes, and {MAX_BYTES} can be told to a proxy")
    secrets = tuple((need.name, need.key) for need in needs if need.kind == "Secret" and need.key is not None)
    oidc, cluster = spec.auth.oidc if spec.auth else None, settings.cluster_issuer
    asks_cluster = oidc is not None and oidc.type == "kubernetes" and cluster is not None and not cluster.jwks_file
    return Rules(
        made,
        files.texts,
        secrets,
        cluster_token=asks_cluster,
        listen_tls=_listen_tls(spec, root),
        upstream_tls=upstream_tls,
    )


def _listen_tls(spec: MCPServerSpec, root: str) -> runconfig.ListenTLS | None:
    if spec.proxy.tls is None:
        return None
    secret = spec.proxy.tls.secret_name
    return runconfig.ListenTLS(
        cert_file=_secret_file(root, secret, names.TLS_CERT), key_file=_secret_file(root, secret, names.TLS_KEY)
    )


def _upstream_tls(spec: MCPServerSpec, contents: Contents, files: _Files) -> runconfig.UpstreamTLS | None:
    wanted = spec.upstream_tls
    if wanted is None:
        return None
    bundle = wanted.ca_bundle_ref
    return runconfig.UpstreamTLS(
        ca_file=None if bundle is None else files.put("upstream-ca", _text_of(bundle, "", contents)),
        server_name=wanted.server_name or "",
    )


def _secret_file(root: str, secret: str, key: str) -> str:
    return f"{root}/{names.SECRETS_VOLUME}/{secret}/{key}"


def _authentication(inputs: Inputs, settings: Settings, files: _Files) -> policy.Authentication | None:
    auth, metadata = inputs.server.spec.auth, inputs.server.metadata
    if auth is None:
        return None
    here = inputs.secured(settings.own_url(metadata.namespace, metadata.name) or "")
    inside = inputs.url_of(names.MCP_PATH)
    resources = (auth.resource_url,) if auth.resource_url else tuple(filter(None, (here, inside)))
    return policy.Authentication(
        resources=resources,
        issuers=() if auth.oidc is None else (_issuer(auth.oidc, inputs, settings, files),),
        anonymous=auth.anonymous,
        required_scopes=tuple(sorted(auth.required_scopes or ())),
        scopes_supported=tuple(sorted(auth.scopes_supported or ())),
        authorization_servers=tuple(auth.authorization_servers or ()),
    )


def _issuer(oidc: access.Oidc, inputs: Inputs, settings: Settings, files: _Files) -> policy.Issuer:
    if oidc.type == "kubernetes":
        metadata = inputs.server.metadata
        root = settings.proxy_files(metadata.namespace, metadata.name)
        return _kubernetes(oidc.kubernetes or access.KubernetesIssuer(), settings, f"{root}/{names.SECRETS_VOLUME}")
    if oidc.config_map is not None:
        described = _document(oidc.config_map, inputs.contents)
    else:
        assert oidc.inline is not None
        described = oidc.inline
    options: dict[str, Any] = {}
    if described.ca_bundle_ref is not None:
        text = _text_of(described.ca_bundle_ref, "", inputs.contents)
        options["ca_file"] = files.put("ca", text)
    if described.allow_private_addresses:
        # on a laptop nothing is more private than the laptop itself; in a pod that would be the proxy
        options |= {"allow_private": True} | ({} if settings.publishes else {"allow_loopback": True})
    if described.allow_http:
        options["allow_http"] = True
    more: dict[str, Any] = {}
    if described.jwks is not None:
        more["jwks_file"] = files.put("jwks", described.jwks)
    if described.shared_secret_ref is not None:
        metadata, reference = inputs.server.metadata, described.shared_secret_ref
        root = settings.proxy_files(metadata.namespace, metadata.name)
        more["secret_file"] = _secret_file(root, reference.name, reference.key)
    if options:
        more["fetch"] = policy.Fetch(**options)
    return policy.Issuer(
        issuer=described.issuer,
        jwks_url=described.jwks_url,
        audiences=tuple(sorted(described.audiences or ())),
        algorithms=tuple(sorted(described.algorithms or ())),
        prefix=described.prefix or "",
        subject_claim=described.subject_claim,
        groups_claim=described.groups_claim,
        **more,
    )


def _kubernetes(wanted: access.KubernetesIssuer, settings: Settings, secrets: str) -> policy.Issuer:
    cluster = settings.cluster_issuer
    if cluster is None:
        raise Unusable("spec.auth.oidc.type: kubernetes needs a cluster whose API server says who issues its tokens")
    return policy.Issuer(
        issuer=wanted.issuer or cluster.issuer,
        audiences=tuple(sorted(wanted.audiences or ())),
        jwks_url=cluster.jwks_url or None,
        jwks_file=cluster.jwks_file or None,
        fetch=policy.NO_FETCH_OPTIONS if cluster.jwks_file else _of_cluster(secrets),
    )


def _of_cluster(secrets: str) -> policy.Fetch:
    ca, token = f"{secrets}/{names.CLUSTER_CA}", f"{secrets}/{names.CLUSTER_TOKEN}"
    return policy.Fetch(allow_private=True, ca_file=ca, token_file=token)


_OTHER_OBJECTS: Final = ("caBundleRef", "sharedSecretRef")


def _document(reference: access.ConfigMapKey, contents: Contents) -> access.Issuer:
    where = f"spec.auth.oidc.configMap: key {reference.key or access.OIDC_KEY} of ConfigMap {reference.name}"
    try:
        document = json.loads(_text_of(reference, access.OIDC_KEY, contents))
    except (ValueError, RecursionError) as error:
        raise Unusable(f"{where} is no JSON: {error}") from None
    if not isinstance(document, dict):
        raise Unusable(f"{where} is no JSON object")
    for name in _OTHER_OBJECTS:
        if name in document:
            raise Unusable(f"{where}: {name} refers to another object; that goes into spec.auth.oidc.inline")
    try:
        return access.Issuer.model_validate(document)
    except ValidationError as error:
        raise Unusable(f"{where}: {first_error(error)}") from None


def _text_of(reference: access.ConfigMapKey | CaBundle, default: str, contents: Contents) -> str:
    content = contents.get(("ConfigMap", reference.name))
    return "" if content is None else content.text.get(reference.key or default, "")


def _authorization(spec: MCPServerSpec, contents: Contents, files: _Files) -> policy.Authorization | None:
    if spec.authz is None:
        return None
    cedar = spec.authz.cedar
    reference = cedar.config_map_ref
    texts = (_text_of(reference, access.POLICIES_KEY, contents),) if reference else tuple(cedar.policies or ())
    return policy.Authorization(
        policies=texts, entities_file=files.put("entities", cedar.entities) if cedar.entities else None
    )


def _rate_limit(wanted: traffic.RateLimit | None) -> policy.RateLimit | None:
    if wanted is None:
        return None
    return policy.RateLimit(
        shared=_bucket(wanted.shared),
        principal=_bucket(wanted.per_client),
        tools=tuple(
            policy.ToolLimit(tool=limit.name, shared=_bucket(limit.shared), principal=_bucket(limit.per_client))
            for limit in sorted(wanted.tools or (), key=lambda limit: limit.name)
        ),
    )


def _bucket(wanted: traffic.Bucket | None) -> policy.Bucket | None:
    return None if wanted is None else policy.Bucket(tokens=wanted.requests, per=seconds_of(wanted.per))


def _audit(wanted: traffic.Audit | None) -> policy.Audit | None:
    if wanted is None or not wanted.enabled:
        return None
    return policy.Audit(arguments=wanted.arguments, redact=tuple(sorted(wanted.redact or ())))


def _cors(wanted: traffic.Cors | None) -> policy.Cors | None:
    if wanted is None:
        return None
    return policy.Cors(
        allowed_origins=tuple(sorted(wanted.allowed_origins or ())),
        allowed_hosts=tuple(sorted(wanted.allowed_hosts or ())),
        **({} if wanted.max_age is None else {"max_age": int(seconds_of(wanted.max_age))}),
    )


def _set_headers(spec: MCPServerSpec, root: str) -> policy.Headers | None:
    made = {}
    for header in _headers(spec):
        source = header.value_from.secret_key_ref if header.value_from else None
        made[header.name.lower()] = policy.SetHeader(
            name=header.name,
            value=header.value,
            value_file=_secret_file(root, source.name, source.key) if source else None,
            prefix=header.prefix or "",
        )
    for given in _remote_headers(spec):
        if given.name.lower() in made:
            raise Unusable(f"spec.headers.set and spec.remote.headers both have {given.name}: leave one of them out")
        source = given.secret_key_ref
        made[given.name.lower()] = policy.SetHeader(
            name=given.name,
            value=given.value,
            value_file=_secret_file(root, source.name, source.key) if source else None,
        )
    if spec.headers is None and not made:
        return None
    forward = (spec.headers.forward if spec.headers else None) or ()
    return policy.Headers(set=tuple(made[name] for name in sorted(made)), forward=tuple(sorted(forward)))


def bounds_of(spec: MCPServerSpec) -> Mapping[str, Any]:
    """Parts of the route that are left out where the contract's own defaults do, so that no hash changes."""
    found: dict[str, Any] = {}
    if spec.timeouts is not None:
        given = spec.timeouts.model_dump(exclude_none=True)
        if given:
            found["timeouts"] = runconfig.Timeouts(**{name: seconds_of(text) for name, text in given.items()})
    if spec.limits is not None and spec.limits.max_body is not None:
        found["limits"] = runconfig.Limits(max_body=int(value_of(spec.limits.max_body)))
    return found

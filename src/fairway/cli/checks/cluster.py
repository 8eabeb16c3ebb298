"""Checks of a cluster: can it be asked, are the kinds there, does the operator work. Pure."""

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

from fairway.cli.checks import Ailment, Check
from fairway.cli.checks.facts import Cluster as Look
from fairway.cli.checks.facts import Facts, Obj, time_of, title_of

OLDEST = (1, 29)
SKEW = 30.0
SOON = timedelta(days=7)
LEASE_LATE = timedelta(seconds=60)

_TO_DO = {
    "unreachable": "is the cluster up, and is this the right --context? kubectl cluster-info asks the same",
    "login": "log in again, or choose another --context",
    "forbidden": "ask for the right to get, list and watch the kinds of fairway.dev",
    "kubeconfig": "correct the kubeconfig, or name another with --kubeconfig",
}


def _problem(kind: str) -> Any:
    def look(facts: Facts) -> Iterator[Ailment]:
        if facts.cluster is not None and facts.cluster.problem is not None and facts.cluster.problem[0] == kind:
            yield facts.cluster.problem[1], _TO_DO[kind]

    return look


def _seen(facts: Facts) -> Look | None:
    return facts.cluster if facts.cluster is not None and facts.cluster.problem is None else None


def _version(facts: Facts) -> Iterator[Ailment]:
    look = _seen(facts)
    if look and look.version and look.version < OLDEST:
        have, need = (".".join(map(str, v)) for v in (look.version, OLDEST))
        yield f"the cluster is Kubernetes {have}; the kinds need {need}", f"upgrade it to {need} or newer"


def _skew(facts: Facts) -> Iterator[Ailment]:
    look = _seen(facts)
    if look and abs(look.skew) > SKEW:
        way = "ahead of" if look.skew > 0 else "behind"
        yield (
            f"the cluster's clock is {abs(look.skew):.0f} s {way} this machine's: tokens may be refused",
            "set the clock that is wrong; NTP keeps it right",
        )


def _client_certificate(facts: Facts) -> Iterator[Ailment]:
    look = _seen(facts)
    until = look.client_certificate_until if look else None
    if until is not None and until < facts.machine.now + SOON:
        ended = "has ended" if until < facts.machine.now else "ends"
        yield f"your certificate for the cluster {ended} on {until:%Y-%m-%d}", "get a new kubeconfig"


def _crds_missing(facts: Facts) -> Iterator[Ailment]:
    look = _seen(facts)
    missing = [name for name, crd in (look.crds.items() if look else ()) if crd is None]
    if missing:
        yield f"the cluster lacks {', '.join(missing)}", "fairway install"


def _crds_differ(facts: Facts) -> Iterator[Ailment]:
    look = _seen(facts)
    different = [
        name
        for name, crd in (look.crds.items() if look else ())
        if crd is not None and look and _fields(crd) != _fields(look.wanted_crds.get(name, {}))
    ]
    if different:
        yield (
            f"{', '.join(different)} have other fields than this version of fairway knows",
            "fairway install, with the version that the cluster is meant to have",
        )


def _fields(crd: Obj) -> list[Any]:
    versions = (crd.get("spec") or {}).get("versions") or ()
    return [sorted(_paths((v.get("schema") or {}).get("openAPIV3Schema") or {})) for v in versions]


def _paths(schema: Mapping[str, Any], at: str = "") -> Iterator[str]:
    for name, inner in (schema.get("properties") or {}).items():
        yield f"{at}.{name}"
        yield from _paths(inner, f"{at}.{name}")
    if isinstance(schema.get("items"), dict):
        yield from _paths(schema["items"], f"{at}[]")


def _crds_established(facts: Facts) -> Iterator[Ailment]:
    look = _seen(facts)
    for name, crd in look.crds.items() if look else ():
        conditions = {c["type"]: c for c in ((crd or {}).get("status") or {}).get("conditions") or ()}
        bad = [
            c for c in conditions.values() if c["type"] in ("Established", "NamesAccepted") and c["status"] == "False"
        ]
        if bad:
            yield f"{name}: {bad[0].get('message') or bad[0].get('reason')}", "remove the CRD that is in its way"


def _operator_missing(facts: Facts) -> Iterator[Ailment]:
    look = _seen(facts)
    if look and look.operators is not None and not look.operators:
        yield "no operator is installed: nobody makes what servers need", "fairway install"


def _operators_two(facts: Facts) -> Iterator[Ailment]:
    look = _seen(facts)
    found = look.operators or () if look else ()
    if len(found) > 1:
        where = ", ".join(sorted(str(o["metadata"]["namespace"]) for o in found))
        yield (
            f"operators run in {where}: they undo each other's work",
            "fairway uninstall -n NAMESPACE, for all but one",
        )


def _operator_ready(facts: Facts) -> Iterator[Ailment]:
    look = _seen(facts)
    for operator in look.operators or () if look else ():
        wanted = (operator.get("spec") or {}).get("replicas", 1)
        ready = (operator.get("status") or {}).get("readyReplicas", 0)
        where = f"{operator['metadata']['namespace']}/{operator['metadata']['name']}"
        if wanted == 0:
            yield (
                f"the operator {where} is scaled to zero",
                f"kubectl scale -n {where.replace('/', ' deploy/')} --replicas=2",
            )
        elif not ready:
            why = _why(look.operator_pods) if look else ""
            log = f"kubectl logs -n {where.replace('/', ' deploy/')}"
            yield f"no pod of the operator {where} is ready{why}", f"see what it says: {log}"


def _why(pods: tuple[Obj, ...]) -> str:
    for pod in pods:
        status = pod.get("status") or {}
        for container in status.get("containerStatuses") or ():
            waiting = (container.get("state") or {}).get("waiting") or {}
            if waiting.get("reason"):
                return f": {waiting['reason']} {waiting.get('message') or ''}".rstrip()
        for c in status.get("conditions") or ():
            if c.get("type") == "PodScheduled" and c.get("status") == "False":
                return f": {c.get('message') or 'not scheduled'}"
    return ""


def _lease(facts: Facts) -> Iterator[Ailment]:
    look = _seen(facts)
    renewed = ((look.lease or {}).get("spec") or {}).get("renewTime") if look else None
    if not look or not renewed:
        return
    # by the cluster's clock: the operator writes it
    late = facts.machine.now + timedelta(seconds=look.skew) - time_of(renewed)
    if (
        late > LEASE_LATE
        and look.operators
        and any((o.get("status") or {}).get("readyReplicas") for o in look.operators)
    ):
        yield (
            f"no operator has held the lead for {int(late.total_seconds())} s: nothing is reconciled",
            "restart it: kubectl rollout restart -n fairway-system deploy/fairway-operator",
        )


def _rules(facts: Facts) -> Iterator[Ailment]:
    look = _seen(facts)
    if not look or look.rules is None or not look.operators:
        return
    missing = sorted(_deeds(look.wanted_rules) - _deeds(look.rules))
    if missing:
        shown = ", ".join(f"{verb} {resource}" for _, resource, verb in missing[:5])
        more = f" and {len(missing) - 5} more" if len(missing) > 5 else ""
        yield f"the operator lacks rights: {shown}{more}", "fairway install puts them back"


def _deeds(rules: tuple[Obj, ...]) -> set[tuple[str, str, str]]:
    return {
        (group, resource, verb)
        for rule in rules
        for group in rule.get("apiGroups") or ()
        for resource in rule.get("resources") or ()
        for verb in rule.get("verbs") or ()
    }


def _nodes(facts: Facts) -> Iterator[Ailment]:
    look = _seen(facts)
    sick = [
        node["metadata"]["name"]
        for node in (look.nodes or () if look else ())
        if not any(
            c["type"] == "Ready" and c["status"] == "True" for c in (node.get("status") or {}).get("conditions") or ()
        )
    ]
    if sick:
        yield f"not ready: node {', '.join(sick)}", f"kubectl describe node {sick[0]}"


def _metrics(facts: Facts) -> Iterator[Ailment]:
    look = _seen(facts)
    users = [title_of(s) for s in facts.servers if s["spec"].get("autoscaling")]
    if look and look.resource_metrics is False and users:
        yield (
            f"{', '.join(users)}: autoscaling needs CPU and memory figures, and the cluster has no metrics API",
            "install metrics-server, or take spec.autoscaling out",
        )


def _certificates(facts: Facts) -> Iterator[Ailment]:
    look = _seen(facts)
    for secret, until in sorted(look.certificates.items()) if look else ():
        if isinstance(until, str):
            yield f"Secret {secret}: {until}", "put a certificate and its key into tls.crt and tls.key"
        elif until < facts.machine.now + SOON:
            ended = "ended" if until < facts.machine.now else "ends"
            yield (
                f"the certificate in Secret {secret} {ended} on {until:%Y-%m-%d}",
                "renew it; it is used without a restart",
            )


def _ingress_class(facts: Facts) -> Iterator[Ailment]:
    look = _seen(facts)
    if not look or look.ingress_classes is None:
        return
    for server in facts.servers:
        ingress = server["spec"].get("ingress") or {}
        wanted = ingress.get("className")
        if ingress.get("enabled") and wanted and wanted not in look.ingress_classes:
            there = ", ".join(sorted(look.ingress_classes)) or "none"
            yield (
                f"{title_of(server)}: spec.ingress.className {wanted} is no class of this cluster, which has {there}",
                "correct spec.ingress.className, or install that controller",
            )


CHECKS = (
    Check("kubeconfig", "the kubeconfig can be used", _problem("kubeconfig")),
    Check("cluster-unreachable", "the cluster answers", _problem("unreachable")),
    Check("cluster-login", "the cluster knows you", _problem("login")),
    Check("cluster-rights", "you may look at servers", _problem("forbidden")),
    Check("cluster-version", "the cluster is new enough", _version),
    Check("clock-skew", "the cluster's clock and this one agree", _skew),
    Check("client-certificate", "your certificate for the cluster lasts", _client_certificate),
    Check("crds-missing", "the kinds are there", _crds_missing),
    Check("crds-differ", "the kinds are of this version", _crds_differ),
    Check("crds-refused", "the kinds were accepted", _crds_established),
    Check("operator-missing", "an operator is installed", _operator_missing),
    Check("operator-twice", "one operator is installed", _operators_two),
    Check("operator-down", "the operator is ready", _operator_ready),
    Check("operator-lead", "an operator leads", _lease),
    Check("operator-rights", "the operator may do its work", _rules),
    Check("nodes", "the nodes are ready", _nodes),
    Check("autoscaling-metrics", "autoscalers have figures", _metrics),
    Check("certificates", "certificates that servers use last", _certificates),
    Check("ingress-class", "ingress classes that servers name are there", _ingress_class),
)

import json
from dataclasses import replace

import pytest

from fairway.controllers.mcpserver.desired import desired
from fairway.controllers.mcpserver.permissions import egress
from tests.unit.controllers.mcpserver.samples import SETTINGS, config_map, inputs, server

AT = replace(SETTINGS, api_server=("10.96.0.1/32", "192.168.1.10/32"))


def decided(document, settings=AT):
    text = document if isinstance(document, str) else json.dumps(document)
    profile = {"type": "configMap", "name": "p", "key": "profile.json"}
    gathered = inputs(server(image="w", permissionProfile=profile), None, config_map("p", **{"profile.json": text}))
    return egress(gathered, settings)


def outbound(**allowed):
    return decided({"network": {"outbound": allowed}})


def policy(**spec):
    objects = desired(inputs(server(image="w", **spec)), AT)
    return next((o["spec"] for o in objects if o["kind"] == "NetworkPolicy"), None)


def test_none_may_connect_to_nothing_not_even_a_name_server():
    spec = policy(permissionProfile={"type": "builtin", "name": "none"})
    assert spec["policyTypes"] == ["Ingress", "Egress"]
    assert "egress" not in spec


def test_network_reaches_everything_but_credentials_and_the_api_server():
    (rule,) = policy(permissionProfile={"type": "builtin", "name": "network"})["egress"]
    four, six, pods = rule["to"]
    assert four["ipBlock"] == {
        "cidr": "0.0.0.0/0",
        "except": [
            "10.96.0.1/32",
            "100.100.100.200/32",
            "168.63.129.16/32",
            "169.254.169.254/32",
            "192.0.0.192/32",
            "192.168.1.10/32",
        ],
    }
    assert six["ipBlock"] == {"cidr": "::/0", "except": ["fd00:ec2::254/128", "fd20:ce::254/128"]}
    assert pods == {"namespaceSelector": {}}
    assert "ports" not in rule


def test_without_a_profile_nothing_is_decided_about_what_it_reaches():
    assert policy()["policyTypes"] == ["Ingress"]
    assert policy(proxy={"mode": "none"}) is None


def test_a_profile_holds_without_a_proxy_too():
    spec = policy(proxy={"mode": "none"}, permissionProfile={"name": "none"})
    assert spec["policyTypes"] == ["Egress"]
    assert "ingress" not in spec


def test_addresses_and_ports_are_granted():
    found = outbound(allow_host=["10.1.0.0/16", "8.8.8.8"], allow_port=[443, 80, 443])
    assert found.complaints == ()
    assert found.rules == (
        {
            "to": [{"ipBlock": {"cidr": "10.1.0.0/16"}}, {"ipBlock": {"cidr": "8.8.8.8/32"}}],
            "ports": [{"protocol": "TCP", "port": 80}, {"protocol": "TCP", "port": 443}],
        },
    )


def test_ports_alone_are_granted_everywhere():
    (rule,) = outbound(allow_port=[443]).rules
    assert rule["ports"] == [{"protocol": "TCP", "port": 443}]
    assert rule["to"][0]["ipBlock"]["except"]


@pytest.mark.parametrize("host", ["169.254.169.254", "168.63.129.16", "fd20:ce::254", "10.96.0.1/32"])
def test_what_nobody_may_reach_cannot_be_granted(host):
    found = outbound(allow_host=[host])
    assert found.rules == (), "a rule without a destination would mean all of them"
    assert "nobody may reach that" in found.complaints[0]


def test_within_a_granted_network_what_nobody_may_reach_is_left_out():
    (rule,) = outbound(allow_host=["10.0.0.0/8"]).rules
    assert rule["to"] == [{"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.96.0.1/32"]}}]


def test_a_name_cannot_be_granted_and_is_named_and_ports_are_not_widened_to_everywhere():
    found = outbound(allow_host=["api.example.com"], allow_port=[443])
    assert found.rules == ()
    (complaint,) = found.complaints
    assert "api.example.com" in complaint
    assert "addresses, not names" in complaint


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ("{", "is not JSON"),
        ("[]", "is not a JSON object"),
        ({"network": "all"}, "network: not an object"),
        ({"network": {"outbound": {"allow_port": ["443"]}}}, "ports are numbers"),
        ({"read": ["/etc"]}, "read: not granted"),
        ({"privileged": True}, "privileged: not granted"),
        ({"network": {"inbound": {"allow_host": ["a"]}}}, "only the proxy"),
        ({"netwrok": {}}, "netwrok: unknown"),
        ({"network": {"mode": "host"}}, "network.mode 'host'"),
    ],
)
def test_a_wrong_entry_grants_nothing_and_is_named(document, said):
    found = decided(document)
    assert found.rules == ()
    assert any(said in complaint for complaint in found.complaints), found.complaints


def test_a_document_that_is_missing_is_waited_for_and_grants_nothing_meanwhile():
    profile = {"type": "configMap", "name": "p", "key": "k"}
    gathered = inputs(server(image="w", permissionProfile=profile))
    assert gathered.unmet is not None
    assert "key k of ConfigMap p" in gathered.unmet.message
    assert egress(gathered, AT).rules == ()

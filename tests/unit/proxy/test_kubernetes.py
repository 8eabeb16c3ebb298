from fairway.proxy.endpoints import Place
from fairway.proxy.kubernetes import places_in


def piece(*endpoints, ports=({"name": "mcp", "port": 3000},)):
    return {"endpoints": list(endpoints), "ports": list(ports)}


def endpoint(address, *, name="a", **conditions):
    return {
        "addresses": [address],
        "conditions": conditions,
        "targetRef": {"kind": "Pod", "name": name, "uid": f"u-{name}"},
    }


def test_ready_endpoints_are_places_with_their_pods():
    slices = [piece(endpoint("10.0.0.2", name="b", ready=True)), piece(endpoint("10.0.0.1", ready=True))]
    assert places_in(slices, 8080) == [Place("10.0.0.1:3000", "a", "u-a"), Place("10.0.0.2:3000", "b", "u-b")]


def test_endpoints_that_are_not_ready_or_serve_no_more_are_left_out():
    ended = endpoint("10.0.0.2", ready=False, serving=False, terminating=True)
    slices = [piece(endpoint("10.0.0.1", ready=False), ended)]
    assert places_in(slices, 8080) == []


def test_endpoints_on_their_way_out_are_known_as_such_for_as_long_as_they_serve():
    leaving = endpoint("10.0.0.1", ready=False, serving=True, terminating=True)
    unsaid = endpoint("10.0.0.2", ready=True, terminating=True)
    assert [place.leaving for place in places_in([piece(leaving, unsaid)], 8080)] == [True, True]


def test_an_endpoint_that_stands_in_two_slices_is_one_place():
    slices = [piece(endpoint("10.0.0.1", ready=True)), piece(endpoint("10.0.0.1", ready=True))]
    assert len(places_in(slices, 8080)) == 1


def test_the_port_is_the_slices_own_as_far_as_it_says():
    def port(*ports):
        return places_in([piece(endpoint("10.0.0.1"), ports=ports)], 8080)[0].address

    assert port({"name": "mcp", "port": 1}, {"name": "metrics", "port": 2}) == "10.0.0.1:1"
    assert port({"name": "other", "port": 2}) == "10.0.0.1:2"
    assert port({"name": "a", "port": 1}, {"name": "b", "port": 2}) == "10.0.0.1:8080"
    assert port() == "10.0.0.1:8080"


def test_an_ipv6_address_is_put_in_brackets():
    assert places_in([piece(endpoint("fd00::1"))], 8080)[0].address == "[fd00::1]:3000"


def test_nothing_known_is_no_place():
    assert places_in([], 8080) == []
    assert places_in([{"endpoints": None, "ports": None}], 8080) == []

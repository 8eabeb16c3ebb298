import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairway.api.quantity import InvalidQuantity, Quantity, canonical, value_of

# the right-hand side is what a Kubernetes API server stores; tests/cluster/api asks a real one
SPELLINGS = {
    "0": "0",
    "0.5": "500m",
    "1": "1",
    "1.": "1",
    ".5": "500m",
    "1000m": "1",
    "1500m": "1500m",
    "1000": "1k",
    "1500": "1500",
    "1024Mi": "1Gi",
    "1536Mi": "1536Mi",
    "0.5Gi": "512Mi",
    "1.5Gi": "1536Mi",
    "0.1Mi": "104858",
    "0.5Ki": "512",
    "0Gi": "0",
    "1e3": "1e3",
    "1E3": "1e3",
    "12e6": "12e6",
    "100e-3": "100e-3",
    "1000k": "1M",
    "100n": "100n",
    "0.1n": "1n",
    "128974848": "128974848",
    "2Ei": "2Ei",
}


@pytest.mark.parametrize(("written", "stored"), SPELLINGS.items())
def test_a_quantity_is_spelled_as_the_api_server_would(written, stored):
    assert canonical(written) == stored


@pytest.mark.parametrize(
    "text", ["", "-1", "+1", "1 Gi", "1gi", "Gi", "1e", "1e100", "1.2.3", "1\n", "٣", "9" * 30, "1Ki2"]
)
def test_what_is_no_quantity_is_refused_with_what_would_be(text):
    with pytest.raises(InvalidQuantity):
        canonical(text)


@given(st.decimals(min_value=0, max_value=10**6, places=3), st.sampled_from(["", "k", "M", "Ki", "Mi", "m"]))
def test_spelling_it_again_changes_nothing_and_never_makes_it_less(number, suffix):
    text = f"{number:f}{suffix}"
    once = canonical(text)
    assert canonical(once) == once
    assert value_of(once) >= value_of(text)


@pytest.mark.parametrize("given", [True, 1.5, None, []])
def test_only_whole_numbers_and_text_are_read(given):
    with pytest.raises(ValueError, match="a number or text"):
        Quantity.read(given)


def test_a_number_is_read_as_its_text():
    assert Quantity.read(2) == "2"

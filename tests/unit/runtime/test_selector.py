"""Label selectors: the API's own forms."""

import pytest

from fairway.runtime.selector import LabelSelector

LABELS = {"app": "toy", "tier": "back", "example.dev/x": "1", "empty": ""}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "  ",
        "app=toy",
        "app==toy",
        "app!=other",
        "missing!=x",
        "app",
        "!missing",
        "app in (toy, other)",
        "tier notin (front)",
        "missing notin (a)",
        "app=toy,tier in (back,front),!missing",
        "example.dev/x=1",
        "empty=",
    ],
)
def test_a_selector_matches(text: str) -> None:
    assert LabelSelector(text).matches(LABELS)


@pytest.mark.parametrize(
    "text",
    ["app=other", "app!=toy", "missing", "!app", "app in (a,b)", "app notin (toy)", "app=toy,missing", "missing=x"],
)
def test_a_selector_does_not_match(text: str) -> None:
    assert not LabelSelector(text).matches(LABELS)


def test_an_object_without_labels_has_none() -> None:
    assert LabelSelector("!app").matches(None)
    assert not LabelSelector("app").matches(None)


@pytest.mark.parametrize("text", ["=x", "app=a=b", "app in toy", "a b", ",", "app=toy,,b"])
def test_what_the_api_would_refuse_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no label selector requirement"):
        LabelSelector(text)

"""resourceVersions: newer, older, or who knows."""

import pytest

from fairway.runtime.resource_version import Order, compare


@pytest.mark.parametrize(
    ("left", "right", "order"),
    [
        ("2", "1", Order.NEWER),
        ("9", "10", Order.OLDER),
        ("10", "10", Order.SAME),
        ("18446744073709551616", "18446744073709551615", Order.NEWER),
        ("opaque", "opaque", Order.SAME),
        ("opaque", "10", Order.UNKNOWN),
        ("10", "opaque", Order.UNKNOWN),
        ("", "10", Order.UNKNOWN),
        ("", "", Order.UNKNOWN),
        ("010", "9", Order.UNKNOWN),
        ("-1", "1", Order.UNKNOWN),
        ("١", "0", Order.UNKNOWN),
    ],
)
def test_versions_compare_as_numbers_or_not_at_all(left: str, right: str, order: Order) -> None:
    assert compare(left, right) is order

"""Errors: typed by who must act, whatever stands in front of the server."""

from typing import Any

import orjson
import pytest

from fairway.kube.errors import (
    AlreadyExists,
    BadRequest,
    Conflict,
    Forbidden,
    Gone,
    Invalid,
    KubeError,
    NotFound,
    Refused,
    ServerUnavailable,
    Stale,
    TooLarge,
    TooManyRequests,
    Transient,
    Unauthorized,
    from_response,
    from_status,
)


@pytest.mark.parametrize(
    ("status", "reason", "kind", "who"),
    [
        (400, "BadRequest", BadRequest, Refused),
        (401, "Unauthorized", Unauthorized, Refused),
        (403, "Forbidden", Forbidden, Refused),
        (404, "NotFound", NotFound, Stale),
        (409, "Conflict", Conflict, Stale),
        (409, "AlreadyExists", AlreadyExists, Stale),
        (410, "Expired", Gone, Stale),
        (413, "RequestEntityTooLarge", TooLarge, Refused),
        (418, "", KubeError, Refused),
        (422, "Invalid", Invalid, Refused),
        (429, "TooManyRequests", TooManyRequests, Transient),
        (500, "InternalError", ServerUnavailable, Transient),
        (503, "ServiceUnavailable", ServerUnavailable, Transient),
        (504, "Timeout", ServerUnavailable, Transient),
    ],
)
def test_a_status_becomes_an_error_of_who_must_act(
    status: int, reason: str, kind: type[KubeError], who: type[KubeError]
) -> None:
    body = orjson.dumps({"kind": "Status", "reason": reason, "message": "why", "code": status})
    error = from_response(status, body, {})
    assert isinstance(error, kind)
    assert isinstance(error, who)
    assert (error.status, error.reason, error.message) == (status, reason, "why")


def test_a_status_inside_a_watch_has_its_code_in_the_body() -> None:
    assert isinstance(from_status({"code": 410, "reason": "Expired", "message": "too old"}), Gone)


def test_a_field_that_no_schema_has_is_the_authors_to_cure() -> None:
    body = {
        "code": 500,
        "message": "failed to create typed patch object (d/x; /v1): .foo: field not declared in schema",
    }
    assert isinstance(from_status(body), Invalid)


@pytest.mark.parametrize(
    ("headers", "body", "expected"),
    [
        ({"retry-after": "7"}, {}, 7.0),
        ({"retry-after": "0.5"}, {}, 0.5),
        ({"retry-after": "-3"}, {}, 0.0),
        ({"retry-after": "nan"}, {}, None),
        ({"retry-after": "1e999"}, {}, None),
        ({"retry-after": "Wed, 21 Oct 2026 07:28:00 GMT"}, {}, None),
        ({}, {"details": {"retryAfterSeconds": 3}}, 3.0),
        ({}, {}, None),
    ],
)
def test_the_time_to_wait_is_taken_from_header_or_body(
    headers: dict[str, str], body: dict[str, Any], expected: float | None
) -> None:
    assert from_response(429, orjson.dumps(body), headers).retry_after == expected


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"<html>bad gateway</html>", "<html>bad gateway</html>"),
        (b"", "HTTP 502"),
        (b"\xff\xfe", "\ufffd\ufffd"),
        (b'"text"', '"text"'),
        (b"[1]", "[1]"),
        (b"x" * 10_000, "x" * 300),
    ],
)
def test_an_answer_that_is_no_status_still_makes_a_message(body: bytes, message: str) -> None:
    error = from_response(502, body, {})
    assert isinstance(error, ServerUnavailable)
    assert error.message == message


def test_causes_can_be_asked_for() -> None:
    error = from_status(
        {"code": 422, "details": {"causes": [{"reason": "FieldValueInvalid", "field": "metadata.uid"}]}}
    )
    assert error.blames("metadata.uid")
    assert error.has_cause("FieldValueInvalid")
    assert not error.blames("spec")
    assert not from_status({"code": 422, "details": {"causes": None}}).has_cause("x")

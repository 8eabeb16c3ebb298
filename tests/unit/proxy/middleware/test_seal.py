"""Sealed session ids: any replica opens them, nobody else's, and nobody can make or change one."""

import base64
import random
import statistics
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairway.proxy.answers import Refusal
from fairway.proxy.middleware.principal import Principal, anonymous
from fairway.proxy.middleware.seal import (
    MAX_SEALED,
    NO_SUCH_SESSION,
    InvalidKey,
    Sealer,
    Session,
    TooLong,
    ephemeral_key,
    read_key,
)

ALICE, BOB = Principal("alice", "https://idp"), Principal("bob", "https://idp")
KEY = bytes(range(32))
SESSION = Session("upstream-session-0123456789abcdef", "weather-0", "6f1f6b0e-5c1e-4a6f-9d0e-1b2c3d4e5f60")


class Clock:
    now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


def sealer(*keys: bytes, server: str = "default/weather", clock: Clock | None = None, **more: str) -> Sealer:
    made = [read_key(key) for key in keys or (KEY,)]
    return Sealer(made, server=server, lifetime=3600, clock=clock or Clock(), **more)


def test_every_replica_opens_what_one_has_sealed():
    sealed = sealer().seal(SESSION, ALICE)
    assert sealer().open(sealed, ALICE) == SESSION
    assert sealer().open(sealed, Principal("alice", "https://idp", ("other", "groups"))) == SESSION


def test_an_id_fits_into_a_header_and_a_url_and_tells_nothing():
    sealed = sealer().seal(SESSION, ALICE)
    assert len(sealed) < 300
    assert set(sealed) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")
    raw = base64.urlsafe_b64decode(sealed + "==")
    for secret in (b"upstream", b"weather", b"alice", b"6f1f6b0e"):
        assert secret not in raw


def test_two_ids_of_one_session_have_nothing_in_common_but_the_key():
    first, second = (base64.urlsafe_b64decode(sealer().seal(SESSION, ALICE) + "==") for _ in range(2))
    assert first[:5] == second[:5]
    assert first[5:] != second[5:]


@pytest.mark.parametrize(
    "who",
    [
        BOB,
        anonymous(),
        Principal("alice", "https://other"),
        Principal("Alice", "https://idp"),
        Principal("alice ", "https://idp"),
        Principal("idp\0alice", "https://"),
        Principal("", ""),
    ],
    ids=lambda p: p.key,
)
def test_a_session_is_its_owners(who):
    assert sealer().open(sealer().seal(SESSION, ALICE), who) is NO_SUCH_SESSION


def test_what_is_refused_is_not_found_whatever_the_reason():
    assert (NO_SUCH_SESSION.status, NO_SUCH_SESSION.code) == (404, -32600)
    clock = Clock()
    one = sealer(clock=clock)
    sealed = one.seal(SESSION, ALICE)
    refused = [
        one.open(sealed, BOB),
        one.open("x" * 50, ALICE),
        one.open(sealed[:-1], ALICE),
        sealer(server="default/other").open(sealed, ALICE),
        sealer(purpose="task").open(sealed, ALICE),
        sealer(bytes(32)).open(sealed, ALICE),
    ]
    clock.now += 3600
    refused.append(one.open(sealed, ALICE))
    assert all(said is NO_SUCH_SESSION for said in refused)


def test_an_id_is_good_until_its_last_second():
    clock = Clock()
    one = sealer(clock=clock)
    sealed = one.seal(SESSION, ALICE)
    clock.now += 3599
    assert one.open(sealed, ALICE) == SESSION


def test_keys_rotate_without_losing_a_session():
    old, new = KEY, bytes(32)
    only_old, both, swapped, only_new = sealer(old), sealer(old, new), sealer(new, old), sealer(new)
    before = only_old.seal(SESSION, ALICE)
    for step in (only_old, both, swapped):
        assert step.open(before, ALICE) == SESSION
    after = swapped.seal(SESSION, ALICE)
    for step in (both, swapped, only_new):
        assert step.open(after, ALICE) == SESSION
    assert only_new.open(before, ALICE) is NO_SUCH_SESSION


@pytest.mark.parametrize(
    "content",
    [
        KEY,
        KEY.hex().encode(),
        KEY.hex().upper().encode() + b"\n",
        base64.b64encode(KEY),
        base64.urlsafe_b64encode(KEY).rstrip(b"="),
        b" " + base64.b64encode(KEY) + b"\n",
    ],
)
def test_a_key_file_may_be_raw_hex_or_base64(content):
    assert read_key(content).id == read_key(KEY).id


@pytest.mark.parametrize(
    "content", [b"", b"short", KEY[:31], KEY + b"\n", b"x" * 64, base64.b64encode(KEY[:16]), b"\xff" * 64]
)
def test_what_is_no_key_is_refused_and_never_repeated(content):
    with pytest.raises(InvalidKey) as caught:
        read_key(content, "/etc/key")
    assert str(caught.value) == "/etc/key is not 32 bytes, raw, in hex or in base64"


def test_without_a_key_nothing_can_be_sealed():
    with pytest.raises(InvalidKey):
        Sealer([], server="x", lifetime=1, clock=Clock())
    assert read_key(KEY).id != ephemeral_key().id != ephemeral_key().id


def test_a_server_with_very_long_ids_is_told_so():
    one = sealer()
    assert isinstance(one.open(one.seal(Session("x" * 2048), ALICE), ALICE), Session)
    with pytest.raises(TooLong):
        one.seal(Session("x" * 2049), ALICE)
    with pytest.raises(TooLong):
        one.seal(Session("x", pod="p" * 4000), ALICE)


@given(st.text(max_size=2048), st.text(max_size=60), st.text(max_size=60), st.text(min_size=1, max_size=100))
def test_whatever_a_server_calls_its_session_comes_back(upstream, pod, uid, subject):
    session, who = Session(upstream, pod, uid), Principal(subject, "https://idp")
    try:
        sealed = SEALER.seal(session, who)
    except (TooLong, UnicodeEncodeError):
        return
    assert SEALER.open(sealed, who) == session


@given(st.text(max_size=300) | st.binary(max_size=300).map(lambda raw: base64.urlsafe_b64encode(raw).decode()))
def test_no_text_does_anything_but_not_exist(text):
    assert SEALER.open(text, ALICE) is NO_SUCH_SESSION


def test_ten_thousand_attempts_to_hijack_a_session_fail():
    """Guessed, changed, cut, joined, replayed elsewhere, by somebody else, too late: none gets in."""
    source = random.Random(20260728)
    clock = Clock()
    keys = [KEY, bytes(32)]
    server = sealer(*keys, clock=clock)
    other_server, stranger = sealer(*keys, server="default/other", clock=clock), sealer(b"\x07" * 32, clock=clock)
    alice = [server.seal(Session(f"s{n}", "weather-0", "u"), ALICE) for n in range(20)]
    bobs = [server.seal(Session(f"t{n}", "weather-1", "u"), BOB) for n in range(20)]
    raw = [base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)) for text in alice]
    expired = sealer(*keys, clock=clock)
    expired._lifetime = -1
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"

    def text_of(data: bytes) -> str:
        return base64.urlsafe_b64encode(data).rstrip(b"=").decode()

    def attempt() -> tuple[str, Principal]:
        victim, sealed = source.choice(raw), source.choice(alice)
        match source.randrange(14):
            case 0:  # one bit
                flipped = bytearray(victim)
                flipped[source.randrange(len(flipped))] ^= 1 << source.randrange(8)
                return text_of(bytes(flipped)), ALICE
            case 1:  # one character
                index = source.randrange(len(sealed))
                other = source.choice(alphabet.replace(sealed[index], ""))
                return sealed[:index] + other + sealed[index + 1 :], ALICE
            case 2:
                return text_of(victim[: source.randrange(len(victim))]), ALICE
            case 3:
                return text_of(victim + source.randbytes(source.randrange(1, 40))), ALICE
            case 4:  # the head of one, the body of another
                return text_of(victim[:17] + source.choice([r for r in raw if r is not victim])[17:]), ALICE
            case 5:  # the right shape around nothing
                return text_of(victim[:5] + source.randbytes(len(victim) - 5)), ALICE
            case 6:
                return text_of(source.randbytes(source.randrange(200))), ALICE
            case 7:
                return sealed, BOB
            case 8:
                return source.choice(bobs), ALICE
            case 9:
                return other_server.seal(SESSION, ALICE), ALICE
            case 10:
                return stranger.seal(SESSION, ALICE), ALICE
            case 11:
                return expired.seal(SESSION, ALICE), ALICE
            case 12:  # another key's id on the same bytes
                return text_of(victim[:1] + read_key(keys[1]).id + victim[5:]), ALICE
            case _:  # the same bytes, spelt otherwise
                spelt = (sealed + "=", sealed + "\n", " " + sealed, sealed + "A", sealed.swapcase(), sealed + "\0")
                return source.choice(spelt), ALICE

    for _ in range(10_000):
        said = server.open(*attempt())
        assert isinstance(said, Refusal)
        assert said.status == 404
    assert server.refused == 10_000
    assert all(isinstance(server.open(text, ALICE), Session) for text in alice)


def test_refusing_costs_no_more_than_serving_and_tells_nothing_by_its_time():
    one = sealer(KEY, bytes(32))
    good = one.seal(SESSION, ALICE)
    raw = base64.urlsafe_b64decode(good + "=" * (-len(good) % 4))

    def text_of(data: bytes) -> str:
        return base64.urlsafe_b64encode(data).rstrip(b"=").decode()

    kinds = {
        "good": (good, ALICE),
        "known key": (text_of(raw[:-1] + bytes([raw[-1] ^ 1])), ALICE),
        "unknown key": (text_of(raw[:1] + b"\0\0\0\0" + raw[5:]), ALICE),
        "other owner": (good, BOB),
    }
    spent: dict[str, list[float]] = {name: [] for name in kinds}
    for _ in range(60):
        for name, (text, who) in kinds.items():
            began = time.perf_counter()
            for _ in range(20):
                one.open(text, who)
            spent[name].append(time.perf_counter() - began)
    medians = {name: statistics.median(times) for name, times in spent.items()}
    assert max(medians.values()) < 3 * min(medians.values()), medians
    huge, times = "A" * 10_000_000, []
    for _ in range(5):
        began = time.perf_counter()
        one.open(huge, ALICE)
        times.append(time.perf_counter() - began)
    assert min(times) < 0.001, "what is too long is not even decoded"
    assert len(good) < MAX_SEALED


SEALER = sealer()

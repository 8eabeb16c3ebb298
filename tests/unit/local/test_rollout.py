"""Rollouts: Kubernetes' rules, step by step and to the end."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairway.local.rollout import Decision, PodFact, Strategy, decide, status_of, strategy_of

SURGE = Strategy(surge=1, unavailable=0)


def new(name: str, *, ready: bool = True, created: str = "") -> PodFact:
    return PodFact(name, current=True, ready=ready, created=created)


def old(name: str, *, ready: bool = True, created: str = "") -> PodFact:
    return PodFact(name, current=False, ready=ready, created=created)


def test_missing_pods_are_made():
    assert decide([], replicas=3, strategy=Strategy(surge=1)) == Decision(create=3)


def test_nothing_is_done_when_all_is_well():
    assert decide([new("a"), new("b")], replicas=2, strategy=SURGE) == Decision()


def test_a_new_pod_comes_before_the_old_one_goes():
    assert decide([old("a")], replicas=1, strategy=SURGE) == Decision(create=1)


def test_the_old_pod_stays_until_the_new_one_is_ready():
    assert decide([old("a"), new("b", ready=False)], replicas=1, strategy=SURGE) == Decision()


def test_the_old_pod_goes_when_the_new_one_is_ready():
    assert decide([old("a"), new("b")], replicas=1, strategy=SURGE) == Decision(delete=("a",))


def test_scaling_down_takes_the_youngest_of_the_ready_and_the_unready_first():
    pods = [new("elder", created="1"), new("younger", created="2"), new("broken", ready=False, created="0")]
    assert decide(pods, replicas=1, strategy=SURGE).delete == ("broken", "younger")


def test_scaling_to_zero_takes_old_and_new_alike():
    decision = decide([old("a"), new("b"), new("c", ready=False)], replicas=0, strategy=SURGE)
    assert sorted(decision.delete) == ["a", "b", "c"]
    assert decision.create == 0


def test_an_old_pod_that_serves_nobody_goes_before_one_that_does():
    pods = [old("good"), old("bad", ready=False), new("c"), new("d", ready=False)]
    assert decide(pods, replicas=2, strategy=Strategy(surge=2)).delete == ("bad",)


def test_a_broken_template_leaves_the_old_pods_serving():
    pods = [old("a"), old("b"), new("c", ready=False)]
    assert decide(pods, replicas=2, strategy=SURGE) == Decision()


def test_recreate_stops_every_old_pod_before_the_first_new_one():
    strategy = Strategy(surge=0, recreate=True)
    assert decide([old("a"), old("b")], replicas=2, strategy=strategy) == Decision(delete=("a", "b"))
    assert decide([], replicas=2, strategy=strategy) == Decision(create=2)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, Strategy(surge=1, unavailable=0)),
        ({"replicas": 4}, Strategy(surge=1, unavailable=1)),
        (
            {"replicas": 10, "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "15%"}}},
            Strategy(surge=2, unavailable=2),
        ),
        ({"strategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 0}}}, Strategy(surge=0, unavailable=1)),
        ({"strategy": {"type": "Recreate"}}, Strategy(surge=0, unavailable=0, recreate=True)),
    ],
)
def test_the_strategy_is_read_with_the_defaults_and_the_rounding_of_kubernetes(spec, expected):
    assert strategy_of(spec) == expected


def test_status_leaves_out_what_is_zero():
    deployment = {"metadata": {"generation": 7}, "spec": {"replicas": 2}}
    assert status_of(deployment, [new("a"), old("b", ready=False)]) == {
        "observedGeneration": 7,
        "replicas": 2,
        "updatedReplicas": 1,
        "readyReplicas": 1,
        "availableReplicas": 1,
        "unavailableReplicas": 1,
    }
    assert status_of({"metadata": {"generation": 1}, "spec": {"replicas": 0}}, []) == {"observedGeneration": 1}


@given(
    ready_old=st.lists(st.booleans(), max_size=6),
    ready_new=st.lists(st.booleans(), max_size=6),
    replicas=st.integers(0, 6),
    surge=st.integers(0, 3),
    unavailable=st.integers(0, 3),
    recreate=st.booleans(),
    data=st.data(),
)
def test_every_rollout_ends_with_the_wanted_pods_and_never_has_too_few_or_too_many(
    ready_old, ready_new, replicas, surge, unavailable, recreate, data
):
    strategy = Strategy(surge=surge, unavailable=unavailable or (not surge), recreate=recreate)
    pods = [old(f"o{i}", ready=r) for i, r in enumerate(ready_old)]
    pods += [new(f"n{i}", ready=r) for i, r in enumerate(ready_new)]
    for step in range(60):
        decision = decide(pods, replicas=replicas, strategy=strategy)
        before = sum(pod.ready for pod in pods)
        pods = [pod for pod in pods if pod.name not in decision.delete]
        if not recreate:
            # deleting never takes the ready ones below what the strategy allows, unless they were below it before
            assert sum(pod.ready for pod in pods) >= min(before, max(0, replicas - strategy.unavailable))
            if decision.create:
                assert len(pods) + decision.create <= replicas + strategy.surge + len(decision.delete)
        pods += [new(f"s{step}-{i}", ready=False) for i in range(decision.create)]
        if all(p.current and p.ready for p in pods) and len(pods) == replicas:
            assert decide(pods, replicas=replicas, strategy=strategy) == Decision()
            return
        if decision == Decision():
            waiting = [i for i, pod in enumerate(pods) if not pod.ready]
            assert waiting, "the rollout is stuck though every pod is ready"
            index = data.draw(st.sampled_from(waiting))
            pods[index] = replace(pods[index], ready=True)
    raise AssertionError(f"the rollout never ends: {pods}")

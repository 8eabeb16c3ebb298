from fairway.api.conditions import Condition, ConditionType, Reason, merge

OLD, NOW = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"


def at(conditions):
    return {c["type"]: c["lastTransitionTime"] for c in conditions}


def test_the_time_moves_only_when_the_status_flips():
    before = merge([], [Condition(ConditionType.READY, "False", Reason.PENDING)], generation=1, now=OLD)
    same = merge(before, [Condition(ConditionType.READY, "False", Reason.NOT_MCP, "x")], generation=2, now=NOW)
    flipped = merge(before, [Condition(ConditionType.READY, "True", Reason.READY)], generation=2, now=NOW)
    assert at(same) == {"Ready": OLD}
    assert same[0]["reason"] == "NotMCP"
    assert same[0]["observedGeneration"] == 2
    assert at(flipped) == {"Ready": NOW}


def test_a_condition_that_is_no_longer_decided_goes():
    before = merge([], [Condition(ConditionType.PROXY_READY, "True", Reason.ROLLED_OUT)], generation=1, now=OLD)
    assert merge(before, [], generation=2, now=NOW) == []

"""The findings of `windrow infer --check` about refused messages."""

from __future__ import annotations

from windrow.ingest.config.limits import LimitsSpec
from windrow.ingest.infer.schema_drift import RefusalCount, refusals


def refusal_count(reason: str, messages: int, stage: str = "value") -> RefusalCount:
    return RefusalCount(stage, reason, "it says why", messages, "t", 0, 7)


def test_a_stages_share_is_that_of_all_its_reasons() -> None:
    """The dead letters of a stage are added up before they are compared with its limit.

    Two reasons may be allowed alone but not together, because the window would be refused.
    """
    limits = LimitsSpec.model_validate({"max_dead_ratio": None, "value": {"max_dead_ratio": 0.3}})
    both = [refusal_count("syntax", 20), refusal_count("type", 20)]
    assert {finding.level for finding in refusals(both, 100, limits)} == {"wrong"}
    assert {finding.level for finding in refusals(both[:1], 100, limits)} == {"info"}
    apart = [refusal_count("syntax", 20), refusal_count("rule", 20, "rules")]
    assert {finding.level for finding in refusals(apart, 100, limits)} == {"info"}

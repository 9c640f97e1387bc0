"""The cases of the contract suites that depend on how an object store takes a commit.

The other cases are the same for any storage.
"""

from __future__ import annotations

from windrow.ingest.testing.contracts.sink import SinkContract
from windrow.ingest.testing.contracts.sink_audit import SinkAuditContract
from windrow.ingest.testing.contracts.sink_under_test import SinkUnderTest

_CASES = (
    SinkContract.test_look_without_a_table,
    SinkContract.test_a_commit_shows_rows_and_receipt,
    SinkContract.test_a_second_commit_writes_nothing,
    SinkContract.test_a_replacement_takes_away_only_its_own_window,
    SinkContract.test_dead_replays_race,
    SinkContract.test_an_overlap_is_refused,
    SinkContract.test_a_stale_generation_changes_nothing,
    SinkContract.test_eight_racers_of_one_window,
    SinkContract.test_racers_of_different_windows_all_arrive,
    SinkContract.test_two_stale_replacements_both_arrive,
    SinkContract.test_a_lost_answer_is_settled_by_looking,
    SinkContract.test_racing_preparations_agree,
    SinkContract.test_runs_that_make_one_table_at_the_same_time_share_it,
    SinkAuditContract.test_rows_are_held_against_their_windows,
    SinkAuditContract.test_what_is_committed_is_never_swept,
)

OF_A_STORE: type[SinkUnderTest] = type(
    "OfAStore", (SinkUnderTest,), {case.__name__: case for case in _CASES}
)

"""The options of a read: wrong ones are refused, and none is ignored."""

from __future__ import annotations

import pytest

from windrow.ingest.dataframes.options import read_options
from windrow.ingest.errors import SpecError
from windrow.ingest.model.plan import Split

SPLITS = (
    '[{"topic": "t", "partition": 1, "start": 5, "stop": 9}, {"topic": "t", "partition": 0,'
    ' "start": 0, "stop": 3}]'
)


def test_splits_of_a_cluster() -> None:
    """Splits have exact integers and are sorted by log; client properties begin with `client.`."""
    options = read_options(
        {"bootstrap_servers": "k:9092", "splits": SPLITS, "client.security.protocol": "SSL"}
    )
    assert options.splits == (Split("t", 0, 0, 3), Split("t", 1, 5, 9))
    assert dict(options.client) == {"security.protocol": "SSL"}


def test_a_mode_is_written_as_sparks_own_are() -> None:
    """The mode is accepted in any case, like Spark's own modes."""
    assert (
        read_options({"spec": "s.yaml", "window": "7", "mode": "DROPMALFORMED"}).mode
        == "dropmalformed"
    )


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"splits": SPLITS}, "exactly one of spec and bootstrap_servers"),
        (
            {"spec": "s.yaml", "bootstrap_servers": "k:9092", "splits": SPLITS},
            "exactly one of spec and bootstrap_servers",
        ),
        ({"spec": "s.yaml"}, "exactly one of window and splits"),
        ({"spec": "s.yaml", "window": "7", "splits": SPLITS}, "exactly one of window and splits"),
        (
            {"bootstrap_servers": "k:9092", "window": "7"},
            "window: is a window of a pipeline: it goes with spec",
        ),
        (
            {"bootstrap_servers": "k:9092", "splits": SPLITS, "columns": "rows"},
            "columns: without a spec",
        ),
        (
            {"bootstrap_servers": "k:9092", "splits": SPLITS, "mode": "failfast"},
            "mode: is about messages that can't become rows",
        ),
        (
            {"spec": "s.yaml", "window": "7", "columns": "messages", "mode": "failfast"},
            "mode: is about messages that can't become rows",
        ),
        ({"spec": "s.yaml", "window": "7", "mode": "permissive"}, "mode: "),
        (
            {"spec": "s.yaml", "window": "7", "isolation": "read_uncommitted"},
            "isolation: can't be set with spec, which says it",
        ),
        (
            {"spec": "s.yaml", "window": "7", "client.sasl.password": "hush"},
            "client: can't be set with spec, which says it",
        ),
        (
            {"bootstrap_servers": "k:9092", "splits": SPLITS, "client.group.id": "x"},
            "client.group.id: ",
        ),
        ({"spec": "s.yaml", "windw": "7"}, "windw: "),
        ({"path": "s.yaml", "window": "7", "spec": "s.yaml"}, "load() takes no path"),
        ({"bootstrap_servers": "k:9092", "splits": "latest"}, "splits: must be a JSON list"),
        ({"bootstrap_servers": "k:9092", "splits": "[]"}, "splits: must name at least one split"),
        (
            {
                "bootstrap_servers": "k:9092",
                "splits": '[{"topic": "t", "partition": 0, "start": 3, "stop": 3}]',
            },
            "0 <= start < stop",
        ),
        (
            {
                "bootstrap_servers": "k:9092",
                "splits": (
                    '[{"topic":"t","partition":0,"start":0,"stop":3},{"topic":"t","partition":0,"start":2,"stop":4}]'
                ),
            },
            "offset 2 of t[0] lies in two splits",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(options: dict[str, str], says: str) -> None:
    """Each mistake is reported at its option before a broker is asked, without secrets."""
    with pytest.raises(SpecError) as refused:
        read_options(options)
    assert says in str(refused.value)
    assert "hush" not in str(refused.value)

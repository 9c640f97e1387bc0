"""A file with one pipeline for each topic: what they are, and how mistakes name them."""

from __future__ import annotations

from pathlib import Path

import pytest

from windrow.ingest.config.load import load_spec, load_specs, parse_specs
from windrow.ingest.config.pipeline import PipelineSpec
from windrow.ingest.errors import SpecError

TEXT = """\
for_each:
  topic_pattern: shop[.](.*)
  topics:
    shop.orders:
    shop.customers: {window: {grid: daily, delay: null}, decode: {schema: "m:Customer"}}
    shop.eu.refunds: {id: refunds, sink: {path: /moved}}
id: shop_{name}
source: {bootstrap_servers: "127.0.0.1:9", offsets_group: "g-{name}"}
window: {grid: hourly, start: "2026-01-05T00:00:00Z", delay: 7m}
decode: {schema: "m:Row"}
sink: {path: "data/{name}"}
"""


def write(folder: Path, old: str = "", new: str = "") -> Path:
    """Writes the file, with a text of it replaced."""
    assert old in TEXT
    file = folder / "defs.yaml"
    file.write_text(TEXT.replace(old, new, 1) if old else TEXT)
    return file


def mistakes(file: Path) -> list[str]:
    """Returns the lines of the error about a file."""
    with pytest.raises(SpecError) as caught:
        load_specs(file)
    return [line.strip() for line in str(caught.value).splitlines() if line.startswith("  ")]


def test_each_topic_has_a_pipeline_with_its_name_and_its_own_settings(tmp_path: Path) -> None:
    """`{name}` stands everywhere for the pattern's group; own settings are a JSON Merge Patch."""
    file = write(tmp_path)
    specs = load_specs(file)
    assert [(s.id, s.source.topic, s.source.offsets_group) for s in specs] == [
        ("shop_orders", "shop.orders", "g-orders"),
        ("shop_customers", "shop.customers", "g-customers"),
        ("refunds", "shop.eu.refunds", "g-eu.refunds"),
    ]
    assert [s.sink_path() for s in specs] == [
        str(tmp_path / "data" / "orders"),
        str(tmp_path / "data" / "customers"),
        "/moved",
    ]
    orders, customers, _ = [s.model_dump() for s in specs]
    assert [customers["window"][name] for name in ("grid", "start")] == [
        "daily",
        orders["window"]["start"],
    ]
    assert (customers["window"]["delay"].seconds, orders["window"]["delay"].seconds) == (300, 420)
    assert [s.decode.schema_ for s in specs] == ["m:Row", "m:Customer", "m:Row"]
    assert [s.spec_path for s in specs] == [Path(f"{file}:{s.id}") for s in specs]


def test_one_pipeline_of_a_file_is_named_by_its_id(tmp_path: Path) -> None:
    """`FILE:ID` is the same spec as in the whole file; a file alone is refused where one is asked.

    A file whose own name has a colon is still a file.
    """
    file = write(tmp_path)
    assert load_spec(f"{file}:refunds") == load_specs(file)[2]
    with pytest.raises(SpecError, match=r"has 3 pipelines: shop_orders.* as .*yaml:shop_orders"):
        load_spec(file)
    with pytest.raises(SpecError, match=r"no pipeline refund, but .*yaml:refunds"):
        load_spec(f"{file}:refund")
    odd = file.rename(tmp_path / "a:b.yaml")
    assert len(load_specs(odd)) == 3


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("grid: daily", "grid: dayly", ["line 5: for_each.topics.shop.customers.window.grid: ..."]),
        ("grid: hourly", "grid: dayly", ["line 9: window.grid: ... (shop_orders of topic"]),
        ("delay: 7m", "dellay: 7m", ["line 9: window.dellay: unknown key; did you mean delay?"]),
        ("/moved", "data/orders", ["line 11: sink: topics shop.orders and shop.eu.refunds have"]),
        ("id: refunds, ", "id: shop_orders, ", ["line 7: id: topics shop.orders and shop.eu"]),
        ("shop_{name}", "{name}", ['line 7: id: a name must be in quotes ... "{name}"']),
        ("source: {", "source: {topic: x, ", ["line 8: source.topic: for_each says"]),
        ("shop.orders:", "orders:", ["line 4: for_each.topics.orders: doesn't match"]),
        ("shop[.](.*)", "shop[.(.*)", ["line 2: for_each.topic_pattern: must be a regular"]),
        ("id: shop_{name}\n", "", ["line 1: id: is missing (topic shop.orders, topic shop.cust"]),
        (
            "shop.orders:",
            "shop.orders: {source: {client: {sasl.password: hush, ssl.ca.location: 0x9}}}",
            [
                "line 4: for_each.topics.shop.orders.source.client.sasl.password: is written out",
                "line 4: ... sasl.password: would be ignored: security.protocol must be ... (shop_",
                "line 4: for_each.topics.shop.orders.source.client.ssl.ca.location: YAML reads",
            ],
        ),
    ],
)
def test_mistakes_name_their_line_and_their_pipelines(
    tmp_path: Path, old: str, new: str, expected: list[str]
) -> None:
    """A mistake of all pipelines is told once, one of some with their ids and topics.

    It stands at the topic's own setting, if that has it. No secret is shown.
    """
    found = mistakes(write(tmp_path, old, new))
    assert len(found) == len(expected)
    for line, beginning in zip(found, expected, strict=True):
        position = 0
        for part in beginning.split("..."):
            position = line.index(part.strip(), position) + 1
        assert not {"0x9", "hush"} & {*line.split()}


def test_attributes_from_python_have_topics_too(tmp_path: Path) -> None:
    """A list of topics without a pattern: `{name}` is the whole name."""
    attributes = {
        "for_each": {"topics": ["a.b", "c"]},
        "id": "{name}",
        "source": {"bootstrap_servers": "127.0.0.1:9"},
        "window": {"grid": "batch"},
        "decode": {"schema": "m:Row"},
        "sink": {"path": "{name}"},
    }
    specs: list[PipelineSpec] = parse_specs(attributes, tmp_path)
    assert [(spec.id, spec.source.topic) for spec in specs] == [("a.b", "a.b"), ("c", "c")]

"""The asset of a table's dead letters, downstream of the table.

It has no run of its own. A window's dead letters are committed with its rows, so the run
that reports a window reports them too. A dead-letter replay reports those that are left.
"""

from __future__ import annotations

from collections.abc import Mapping

import dagster as dg

from windrow.assets.attributes import shared_attributes
from windrow.assets.description import code
from windrow.assets.metadata import Value, span_text
from windrow.assets.names import dead_letters_key, dead_replay_job_name, table_key
from windrow.ingest.config.pipeline import PipelineSpec
from windrow.ingest.model.receipt import Receipt
from windrow.ingest.sinks.kit.commit.dead_letter_table import COLUMNS


def dead_letters_asset(
    spec: PipelineSpec, partitions: dg.PartitionsDefinition | None
) -> dg.AssetSpec:
    """Makes the asset, with the partitions of the table."""
    location = spec.sink.dead_place(spec.folder)
    return dg.AssetSpec(
        dead_letters_key(spec),
        deps=[table_key(spec)],
        partitions_def=partitions,
        description=(
            f"Messages that {code(spec.id)} refused, each with the reason. Runs of the table show"
            f" them; the job {code(dead_replay_job_name(spec))} makes rows of those that fit by"
            " then."
        ),
        metadata={
            "path": dg.MetadataValue.path(location),
            "dagster/uri": location,
            "dagster/column_schema": dg.TableSchema(
                [dg.TableColumn(field.name, str(field.type)) for field in COLUMNS]
            ),
        },
        **shared_attributes(spec),
    )


def dead_letters_event(
    spec: PipelineSpec, receipt: Receipt, key: str, version: Mapping[str, str]
) -> dg.AssetMaterialization:
    """Returns the event of a window's dead letters.

    Args:
        spec: the pipeline.
        receipt: the window's receipt.
        key: the window's partition key.
        version: the tags of the table's data version.
    """
    dead, read = receipt.counts.dead, receipt.counts.read
    metadata: dict[str, Value] = {
        "dead_letters": dead,
        "dead_ratio": round(dead / max(read, 1), 6),
        "dead_reasons": dg.MetadataValue.json(dict(receipt.reasons.most_common())),
        "window": span_text(receipt.window),
        "generation": receipt.generation,
    }
    return dg.AssetMaterialization(
        dead_letters_key(spec), partition=key, metadata=metadata, tags=version
    )

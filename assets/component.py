"""The component: a pipeline as a YAML file, which is the command's SPEC as well."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Self

import dagster as dg
from pydantic import BaseModel, RootModel

from windrow.assets.factory import kafka_table
from windrow.assets.names import identifier, kafka_key
from windrow.assets.scaffold import PipelineScaffolder
from windrow.assets.yamlschema import as_written
from windrow.ingest.config.load import load_spec, parse_spec
from windrow.ingest.config.pipeline import PipelineSpec
from windrow.ingest.errors import SpecError

FILE = "defs.yaml"

# A class of dagster-spark, which comes with dagster-pyspark: `dg` warns of it in each
# command, whatever the project uses.
warnings.filterwarnings("ignore", "Class `SparkDeclarativePipelineScaffolder`", dg.PreviewWarning)


class Attributes(RootModel[dict[str, Any]]):
    """A spec before its templates are resolved.

    Its JSON schema is the spec's, for editors and `dg check yaml`.
    """

    @classmethod
    def model_json_schema(cls, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """The spec's schema as it is written, without `folder`, which is where the file lies."""
        schema = PipelineSpec.model_json_schema(*args, **kwargs)
        del schema["properties"]["folder"]
        schema["required"].remove("folder")
        return as_written(schema)


@dg.scaffold_with(PipelineScaffolder)
class KafkaTable(dg.Component):
    """A Kafka topic becomes a table, one bounded window at a time, exactly once."""

    def __init__(self, spec: PipelineSpec) -> None:
        """`spec`: the whole pipeline."""
        self.spec = spec

    @classmethod
    def get_model_cls(cls) -> type[BaseModel]:
        """What stands under `attributes`."""
        return Attributes

    @classmethod
    def get_spec(cls) -> dg.ComponentTypeSpec:
        """For lists of components."""
        return dg.ComponentTypeSpec(
            description=cls.__doc__,
            produces=["asset", "asset_check", "job", "schedule", "resource"],
        )

    @classmethod
    def load(cls, attributes: BaseModel | None, context: dg.ComponentLoadContext) -> Self:
        """Read the spec as the command does: from the same file, with the same
        templates, and the same words for each mistake.

        Raises:
            SpecError: with all mistakes at once, each with its line.
        """
        tree = context.resolution_context.source_position_tree
        file = None if tree is None else Path(tree.position.filename)
        if file is not None and file.is_file():
            # Dagster takes several documents in a file, divided by ---
            number = context.component_path.instance_key
            return cls(load_spec(file, number if isinstance(number, int) else 0))
        raw = attributes.root if isinstance(attributes, Attributes) else {}
        return cls(parse_spec(raw, context.path))

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """All of the pipeline's definitions.

        Raises:
            SpecError: another pipeline of the code location would have the same names in Dagster.
        """
        others = [
            c.spec for c in context.component_tree.get_all_components(KafkaTable) if c is not self
        ]
        refuse_alike(self.spec, others)
        refuse_two_clusters(self.spec, others)
        return kafka_table(self.spec)


def refuse_alike(spec: PipelineSpec, others: Iterable[PipelineSpec]) -> None:
    """Hold a pipeline's name against the others of its code location: Dagster's names
    know letters, digits and underscores only.

    Raises:
        SpecError: names both ids and both files.
    """
    name = identifier(spec.id)
    other = next((o for o in others if identifier(o.id) == name), None)
    if other is None:
        return
    what = (
        f"have one id, {spec.id}"
        if spec.id == other.id
        else (
            f"have the ids {spec.id} and {other.id}, which Dagster can't tell apart: both are"
            f" {name}"
        )
    )
    one, two = sorted(str(each.folder / FILE) for each in (spec, other))
    raise SpecError(
        f"{one} and {two} {what}",
        "spec",
        "Give one of them another id, or a code location of its own.",
    )


def refuse_two_clusters(spec: PipelineSpec, others: Iterable[PipelineSpec]) -> None:
    """Hold a pipeline's cluster against those that others of its code location call by
    the same name, in another windrow.yaml.

    Raises:
        SpecError: names the cluster and both files.
    """
    other = next(
        (
            o
            for o in others
            if kafka_key(o) == kafka_key(spec) and o.named_cluster != spec.named_cluster
        ),
        None,
    )
    if other is not None:
        one, two = sorted(str(each.folder / FILE) for each in (spec, other))
        what = (
            f"{one} and {two} name a cluster {spec.source.cluster} and mean two, which Dagster"
            " would have under one key"
        )
        raise SpecError(
            what,
            "spec",
            "Tell it in one windrow.yaml above both, or give the two clusters two names.",
        )

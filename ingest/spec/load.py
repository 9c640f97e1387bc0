"""A spec file becomes a pipeline's spec, or all that is wrong with it.

A spec file is Dagster's component file (the keys beside `attributes` are Dagster's business) or just the attributes. Values may hold
`{{ env.NAME }}`, `{{ env('NAME') }}` and `{{ env('NAME', 'default') }}`, the form that Dagster components use. All mistakes are reported
at once. The file is read here for the command and for Dagster alike, so it means the same to both.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from ingest.config.document import Document, Mistake, read_document, read_values
from ingest.config.values import section_of
from ingest.decode.kind import SCHEMA_REFERENCE
from ingest.spec.cluster import ClusterSpec, cluster_name
from ingest.spec.pipeline import NOT_WRITTEN, PipelineSpec
from ingest.spec.reading import client_mistakes, refusal, text_of, validated
from ingest.spec.shared import named_cluster

_GIVEN = {
    "folder": "relative paths are relative to the spec's own folder",
    "named_cluster": "a cluster of windrow.yaml is named as source.cluster",
}


def load_spec(path: Path | str, document: int | None = None) -> PipelineSpec:
    """Read the spec in a YAML file.

    Args:
        path: the file. Relative paths in it are relative to its folder.
        document: which of several documents (from 0), as Dagster's component files may hold; None: there must be one.

    Raises:
        SpecError: the file can't be read, or is wrong: then with all its mistakes at once, each with its line and dotted place.
    """
    path = Path(path)
    text = text_of(path, f"The spec {path}", "Give the path of a pipeline's YAML file.")
    return _made(read_document(text, document), path.absolute().parent, str(path))


def parse_spec(attributes: Mapping[str, Any], folder: Path) -> PipelineSpec:
    """The spec from attributes whose templates are resolved already. `folder`: what relative paths are relative to.

    Raises:
        SpecError: with all mistakes, each with its dotted place.
    """
    return _made(Document(attributes), folder.absolute(), "the spec")


def fill_spec(attributes: Mapping[str, Any], folder: Path) -> PipelineSpec:
    """The spec from attributes that may hold templates, and that no file holds.

    Raises:
        SpecError: with all mistakes, each with its dotted place.
    """
    return _made(read_values(attributes), folder.absolute(), "the spec")


def _made(document: Document, folder: Path, name: str) -> PipelineSpec:
    spec, wrong = _checked(document.attributes, folder)
    # A place whose template failed has no value yet: what pydantic says of it there is noise.
    mistakes = [*document.mistakes, *(m for m in wrong if not document.failed(m.place))]
    if mistakes or spec is None:
        raise refusal(name, mistakes, document)
    return spec


def _checked(attributes: object, folder: Path) -> tuple[PipelineSpec | None, list[Mistake]]:
    """The spec, or everything that is wrong with it."""
    if not isinstance(attributes, Mapping):
        return None, [Mistake((), "a spec is a mapping with id, source, window, decode and sink")]
    source = section_of(attributes, "source")
    named = _named(source, folder)
    wrong = [] if isinstance(named, Mistake) else client_mistakes(source, ("source",), named)
    wrong += client_mistakes({"client": section_of(attributes, "dead_letters").get("client")}, ("dead_letters",))
    wrong += _file_mistakes(attributes, folder)
    wrong += [Mistake((name,), f"unknown key; {_GIVEN[name]}") for name in NOT_WRITTEN if name in attributes]
    if isinstance(named, Mistake):
        wrong.append(named)
    cluster = named if isinstance(named, ClusterSpec) else None
    spec, found = validated(PipelineSpec, {**attributes, "folder": folder, "named_cluster": cluster}, NOT_WRITTEN)
    told = {("named_cluster",), *(mistake.place for mistake in wrong)}
    wrong += [mistake for mistake in found if mistake.place not in told]
    return (None if wrong else spec), wrong


def _named(source: Mapping[str, Any], folder: Path) -> ClusterSpec | Mistake | None:
    """The cluster that the source names; None if it names none, or none that can be a name, which its setting tells."""
    name = source.get("cluster")
    try:
        return named_cluster(cluster_name(str(name)), folder) if isinstance(name, str | int) and not isinstance(name, bool) else None
    except ValueError:
        return None


def _file_mistakes(attributes: Mapping[str, Any], folder: Path) -> list[Mistake]:
    schema = section_of(attributes, "decode").get("schema")
    if not isinstance(schema, str) or not SCHEMA_REFERENCE.fullmatch(schema):
        return []
    file = schema.rpartition(":")[0]
    with suppress(OSError):  # a name that is too long
        if not file.endswith(".py") or (folder / file).is_file():
            return []
    return [Mistake(("decode", "schema"), f"there is no file {file} in {folder}")]

"""Generates `docs/settings.md` from the models of a spec: `make docs`.

`python -m tests.docs.settings` does the same. The purpose of a setting is its field's
description. Its values come from `Values` among the annotations, or from the words of a
`Literal`. Its default is the field's default, unless `Default` gives a text. A section with
several kinds has a table for each kind.
"""

from __future__ import annotations

import typing
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from windrow.ingest.config.cluster import ClusterSpec
from windrow.ingest.config.pipeline import NOT_WRITTEN, PipelineSpec
from windrow.ingest.model.metadata_columns import ALWAYS, DEFAULT, METADATA
from windrow.ingest.schema.metadata_types import TYPES
from windrow.ingest.settings.kinds import OfItsKind, OfItsOption
from windrow.ingest.settings.values import Default, Values

PAGE = Path(__file__).parents[2] / "docs" / "settings.md"
HEAD = "| setting | values | default | meaning |\n| --- | --- | --- | --- |"

INTRODUCTION = """\
# Settings

*Generated from the models in `ingest/config` by `make docs`: to change what stands here, change the description of the field.*

All that stands under `attributes` of a pipeline's file. A setting that would have no effect where it stands is a mistake, and all mistakes
of a file are told at once, each with its line.

- **Templates.** A value may hold `{{ env.NAME }}`, `{{ env('NAME') }}`, `{{ env('NAME', 'default') }}` or
  `{{ env.NAME | default('default') }}`, which the command and Dagster fill in alike. No other template is read.
- **Secrets** belong into the environment, and by templates into `source.client`, `source.registry` or `state`. A
  [reference](logins.md#secrets) (`{env: NAME}`, `{file: PATH}`, `{secret: NAME}`) says where each process finds one for itself: what is
  sent to Spark's workers then [doesn't have it](clusters.md#passwords). `sink.path`
  and `source.bootstrap_servers` refuse them, because a table's place is kept in plans, receipts and logs: credentials of a storage go to
  its own SDK by the environment.
- **An instant** has its time zone: `2026-01-02T03:00:00Z`.
- **A duration** is `30s`, `5m`, `1h30m`, `100ms` or a number of seconds.
- **A size** is `16MiB`, `512KiB` or a number of bytes.
- **A name** that YAML would take for something else (`010`, `0x10`, `on`) needs quotes, and the error says so.
- **A file** has at most 256 KiB and 20 levels. Anchors and aliases (`&`, `*`) are not read.
"""  # noqa: E501

SHARED = """\
## `windrow.yaml`

What many pipelines share lies in a `windrow.yaml`, in a pipeline's folder or in one above it; the nearest one counts, alone. The
search ends at a repository's root, at the user's home, and below a folder that everybody may write to. `source.cluster: prod` names the
entry `prod` of its `clusters`, and so does `dead_letters.cluster: prod`. What the pipeline says itself under `source.client` and
`source.tuning` wins, property by property. Its `secrets` have names, too: `{secret: NAME}` in a pipeline is the
[reference](logins.md#secrets) of this name.

```yaml
clusters:
  prod:
    bootstrap_servers: "kafka-1.example:9093,kafka-2.example:9093"
    client:
      security.protocol: SASL_SSL
      sasl.mechanism: SCRAM-SHA-512
      sasl.username: windrow
      sasl.password: "{{ env.KAFKA_PASSWORD }}"
```
"""  # noqa: E501


@dataclass(frozen=True)
class Table:
    """The settings of one section.

    A section of several kinds has a table of the common settings, and one for each kind.

    Attributes:
        prefix: the section's dotted path.
        about: the text above the table.
        kind: the kind whose settings these are, None for common settings.
        fields: the section's fields by name.
    """

    prefix: str
    about: str
    kind: str | None
    fields: Mapping[str, FieldInfo]

    @property
    def heading(self) -> str:
        """The heading of the table, such as `source.start`, or `sink`, `kind: delta`."""
        name = f"`{self.prefix}`" if self.prefix else "The pipeline"
        return name if self.kind is None else f"{name}, {self.kind}"

    def settings(self) -> Iterator[tuple[str, FieldInfo]]:
        """Yields the section's own settings by their dotted names.

        Fields that are only sections, and fields that users don't write, are left out.
        """
        for name, field in self.fields.items():
            option_name = field.alias or name
            by_kind = OfItsKind.of(field) is not None and not _told_elsewhere(field)
            if (
                name not in NOT_WRITTEN
                and not by_kind
                and not (_models(field.annotation) and not _values(field))
            ):
                yield (f"{self.prefix}.{option_name}" if self.prefix else option_name), field


def tables(model: type[BaseModel] = PipelineSpec, prefix: str = "") -> Iterator[Table]:
    """Yields the table of a section, then those of the sections in it."""
    yield from _tables_of(model.model_fields, prefix, "", None)


def _tables_of(
    fields: Mapping[str, FieldInfo], prefix: str, about: str, kind: str | None
) -> Iterator[Table]:
    yield Table(prefix, about, kind, fields)
    for name, field in fields.items():
        dotted_name = f"{prefix}.{field.alias or name}" if prefix else field.alias or name
        by_kind = OfItsKind.of(field)
        if name in NOT_WRITTEN or _told_elsewhere(field):
            continue
        if by_kind is not None:
            yield from _tables_by_kind(by_kind, dotted_name, field.description or "")
            continue
        by_option = _by_option(field)
        if by_option is not None:
            for named, section in by_option.sections().items():
                yield from _tables_of(section.model_fields, dotted_name, "", f"`{named}`")
            continue
        below = _models(field.annotation)
        for section in below:
            yield from _tables_of(
                section.model_fields,
                dotted_name,
                field.description or "",
                _kind(section) if len(below) > 1 else None,
            )


def _by_option(field: FieldInfo) -> OfItsOption | None:
    """Returns the kinds of a section, or of the sections of a list; None if it has no kinds."""
    marks = [
        m for part in typing.get_args(field.annotation) for m in getattr(part, "__metadata__", ())
    ]
    return next((m for m in (*field.metadata, *marks) if isinstance(m, OfItsOption)), None)


def _told_elsewhere(field: FieldInfo) -> bool:
    """Returns whether a section of several kinds refers to another section, which has
    the tables.
    """
    return OfItsKind.of(field) is not None and any(
        isinstance(mark, Values) for mark in field.metadata
    )


def _tables_by_kind(by_kind: OfItsKind, prefix: str, about: str) -> Iterator[Table]:
    """Yields the table of the settings that all kinds have, then a table for each kind.

    The setting that names the kind has the names of all kinds.
    """
    sections = by_kind.sections()
    first = next(iter(sections.values())).model_fields
    same = [
        name
        for name, field in first.items()
        if all(
            name in s.model_fields and _alike(s.model_fields[name], field)
            for s in sections.values()
        )
    ]
    words = typing.Literal[tuple(sections)]  # type: ignore[valid-type]
    option = FieldInfo(
        annotation=words, default=by_kind.default, description=first[by_kind.option].description
    )  # type: ignore[arg-type]
    yield from _tables_of(
        {by_kind.option: option, **{name: first[name] for name in same if name != by_kind.option}},
        prefix,
        about,
        None,
    )
    for name, section in sections.items():
        kind_fields = {
            n: f for n, f in section.model_fields.items() if n not in {by_kind.option, *same}
        }
        yield from _tables_of(kind_fields, prefix, "", f"`{by_kind.option}: {name}`")


def _alike(first: FieldInfo, second: FieldInfo) -> bool:
    """Returns whether two fields have the same type, description and default."""
    return (first.annotation, first.description, repr(first.default)) == (
        second.annotation,
        second.description,
        repr(second.default),
    )


def settings(model: type[BaseModel] = PipelineSpec) -> dict[str, FieldInfo]:
    """Returns every setting by its dotted name; the first kind counts."""
    field_by_name: dict[str, FieldInfo] = {}
    for table in tables(model):
        for name, field in table.settings():
            field_by_name.setdefault(name, field)
    return field_by_name


def page() -> str:
    """Returns the text of the page."""
    return "\n".join(
        [
            INTRODUCTION,
            *_tables(tables()),
            _metadata(),
            SHARED,
            *_tables(tables(ClusterSpec, "clusters.NAME")),
        ]
    )


def _tables(setting_tables: Iterable[Table]) -> Iterable[str]:
    """Returns the texts of tables. A section that several kinds have alike is there once."""
    return dict.fromkeys(_texts(setting_tables))


def _texts(setting_tables: Iterable[Table]) -> Iterator[str]:
    for table in setting_tables:
        rows = [_row(name, field) for name, field in table.settings()]
        if rows:
            yield (
                f"## {table.heading}\n\n"
                + (f"{table.about}\n\n" if table.about else "")
                + "\n".join([HEAD, *rows])
                + "\n"
            )


def _metadata() -> str:
    always = ", ".join(f"`{name}`" for name in ALWAYS)
    lines = [
        "## Metadata columns\n",
        (
            "What `metadata` can ask for, in the order of the columns. Receipts are verified"
            " against some, and windows are replaced by them,"
        ),
        f"so they are always there: {always}.\n",
        "| name | column, if nothing is said | Arrow type | what it holds |",
        "| --- | --- | --- | --- |",
    ]
    for name in METADATA:
        column = f"`{DEFAULT[name]}`" if name in DEFAULT else "none"
        lines.append(
            f"| `{name}` | {column} | {str(TYPES[name]).replace('|', '/')} |"
            f" {METADATA[name].holds} |"
        )
    return "\n".join(lines) + "\n"


def _row(name: str, field: FieldInfo) -> str:
    return f"| `{name}` | {_values(field)} | {_default(field)} | {field.description} |"


def _values(field: FieldInfo) -> str:
    """Returns the values of a setting: those of the field, or those of its type."""
    field_words = [mark.words for mark in field.metadata if isinstance(mark, Values)]
    words = [field_words[-1]] if field_words else list(_words(field.annotation))
    below = words and _models(field.annotation) and not _told_elsewhere(field)
    return " ".join([", ".join(words), "or a section of its own, below" if below else ""]).strip()


def _words(annotation: object) -> Iterator[str]:
    """Yields the values of the types in an annotation; the outermost type with values counts."""
    type_words = [
        mark.words for mark in getattr(annotation, "__metadata__", ()) if isinstance(mark, Values)
    ]
    if type_words:
        yield type_words[-1]
    elif typing.get_origin(annotation) is typing.Literal:
        yield from (f"`{word}`" for word in typing.get_args(annotation))
    elif annotation is bool:
        yield "`true`, `false`"
    elif isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return
    else:
        for part in typing.get_args(annotation):
            yield from _words(part)


def _default(field: FieldInfo) -> str:
    """Returns the default as a user would write it."""
    default_words = [mark.words for mark in field.metadata if isinstance(mark, Default)]
    if default_words:
        return default_words[-1]
    if field.is_required():
        return "required"
    value = field.default if field.default_factory is None else None
    if value is None:
        return "none"
    if isinstance(value, timedelta):
        return (
            f"`{value // timedelta(minutes=1)}m`"
            if value >= timedelta(minutes=1)
            else f"`{value // timedelta(seconds=1)}s`"
        )
    if isinstance(value, Mapping):
        return ", ".join(f"`{column}`" for column in value.values())
    return f"`{value}`"


def _kind(section: type[BaseModel]) -> str | None:
    """Returns the kind of a section: the field with one possible value, and that value."""
    for name, field in section.model_fields.items():
        words = (
            typing.get_args(field.annotation)
            if typing.get_origin(field.annotation) is typing.Literal
            else ()
        )
        if len(words) == 1:
            return f"`{field.alias or name}: {words[0]}`"
    return None


def _models(annotation: object) -> list[type[BaseModel]]:
    """Returns the models in an annotation, also inside of unions."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for part in typing.get_args(annotation) for model in _models(part)]


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")

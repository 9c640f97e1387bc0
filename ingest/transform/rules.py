"""Checks of a pandera model, on rows whose types are right already.

A built-in check of a column selects one expression, always the same one. So pandera is
asked for it once, and each batch only goes to polars, with just the columns that such
expressions read. Any other check may look at the whole frame, and pandera is asked for
it anew with each batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from typing import Any, Self

import numpy as np
import polars as pl
import pyarrow as pa

from windrow.ingest.errors import SpecError
from windrow.ingest.ports.decoder import Refusal
from windrow.ingest.schema.load import import_pandera

ROW = "*"
"""Name of the column for checks of whole rows."""


@dataclass(frozen=True, eq=False)
class _Rule:
    """One check of a model.

    `column`: the column that it checks; `key`: that column's name in polars, None for
    whole rows.
    """

    check: Any
    index: int
    column: str
    key: str | None

    @property
    def name(self) -> str:
        return str(self.check.name or f"check_{self.index}")

    @property
    def text(self) -> str:
        """The check's demand, without any value."""
        return f"Failed {self.check.error or self.name} - at $" + (
            "" if self.key is None else f".{self.column}"
        )

    def verdicts(self, frame: pl.LazyFrame) -> pl.LazyFrame | bool:
        """Runs the check; returns pandera's lazy result.

        That is one column, or anything if the check is of the whole frame.
        """
        # after import_pandera only
        from pandera.api.polars.types import PolarsData

        found: pl.LazyFrame | bool = self.check.get_backend(frame)(self.check).apply(
            PolarsData(frame, self.key or ROW)
        )
        return found

    def passed(self, verdicts: pl.Series) -> pl.Series:
        """Fills null verdicts: they pass, unless the check has `ignore_na=False`."""
        return (
            verdicts.fill_null(value=bool(self.check.ignore_na))
            if verdicts.null_count()
            else verdicts
        )


class _Recorder:
    """Takes the place of a frame, and records the expressions that a check selects."""

    def __init__(self) -> None:
        self.selected: list[Any] = []

    def select(self, *exprs: Any) -> Self:
        """Records the expressions."""
        self.selected += exprs
        return self


def _expression(rule: _Rule, empty: pl.DataFrame) -> pl.Expr | None:
    """The one expression that a built-in check of a column selects.

    None if it doesn't judge each row by itself.

    Args:
        rule: the check, which pandera has bound to polars.
        empty: the columns without rows. An aggregation gives a row even for none, which
            shows that it is one.
    """
    # after import_pandera only
    from pandera.api.function_dispatch import Dispatcher
    from pandera.api.polars.types import PolarsData

    if rule.key is None or rule.check.element_wise:
        return None
    # pandera has no public way to ask
    if not isinstance(rule.check._check_fn, Dispatcher):  # noqa: SLF001
        return None
    recorder = _Recorder()
    try:
        data = PolarsData(recorder, rule.key)  # type: ignore[arg-type]
        found = rule.check.get_backend(empty.lazy())(rule.check).check_fn(data)
        (asked,) = recorder.selected
        judged = empty.select(asked).to_series()
    # it did something else with the frame, so it needs a real one
    except Exception:  # noqa: BLE001
        return None
    return (
        asked
        if found is recorder and isinstance(asked, pl.Expr) and _is_one_each(judged, 0)
        else None
    )


class Rules:
    """All checks of a model, in its order.

    pandera says what each means, and polars computes all of them at once. (pandera's
    own `validate` runs one after the other, with bookkeeping that costs several times
    what the checks do.) Types and nulls are not checked here. A check with
    `raise_warning` refuses nothing, so it isn't run.
    """

    def __init__(self, model: type[Any]) -> None:
        import_pandera()
        schema = model.to_schema()
        self._name = model.__name__
        self._aliases = _aliases(list(schema.columns))
        of_columns = (
            (name, index, check)
            for name, column in schema.columns.items()
            for index, check in enumerate(column.checks)
        )
        rules = [
            _Rule(check, index, name, self._aliases.get(name, name))
            for name, index, check in of_columns
        ]
        rules += [_Rule(check, i, ROW, None) for i, check in enumerate(schema.checks)]
        self._rules = [rule for rule in rules if not rule.check.raise_warning]
        self._known: dict[_Rule, pl.Expr] = {}  # expressions of built-in checks
        self._reads: list[str] = []  # columns that a rule may read
        self._bound = False

    def failures(self, rows: pa.RecordBatch) -> list[Refusal]:
        """Refusals of rows, each failing row once, by the first check that it fails.

        Raises:
            SpecError: a check failed as a whole: it raised an exception, or gave
                something else than one verdict per row.
        """
        if not self._rules or not rows.num_rows:
            return []
        seen = np.zeros(rows.num_rows, dtype=np.bool_)
        found = []
        for rule, verdicts in zip(self._rules, self._verdicts(rows), strict=True):
            passed = rule.passed(verdicts)
            if not passed.all():
                failing = ~passed.to_numpy() & ~seen
                seen |= failing
                if failing.any():
                    found.append(
                        Refusal(
                            np.flatnonzero(failing), f"check:{rule.column}:{rule.name}", rule.text
                        )
                    )
        return found

    def _with_frames(self, frame: pl.DataFrame) -> Iterator[tuple[_Rule, pl.LazyFrame]]:
        """Each rule with the frame that it judges.

        A check of whole rows sees the columns by the model's names.
        """
        lazy, renamed = frame.lazy(), self._renamed(frame).lazy()
        for rule in self._rules:
            yield rule, lazy if rule.key is None else renamed

    def _verdicts(self, rows: pa.RecordBatch) -> Sequence[pl.Series]:
        """One series per rule.

        If that fails, each rule is run by itself, to say which one it was.
        """
        if not self._bound:
            self._bind(frame_of(rows.slice(0, 0)))
        try:
            found = self._at_once(rows)
        except Exception:  # a check is the user's own code  # noqa: BLE001
            found = []
        if found and all(_is_one_each(verdicts, rows.num_rows) for verdicts in found):
            return found
        return [
            self._alone(rule, lazy, rows.num_rows)
            for rule, lazy in self._with_frames(frame_of(rows))
        ]

    def _at_once(self, rows: pa.RecordBatch) -> Sequence[pl.Series]:
        """All verdicts, in two queries.

        One is for the expressions of built-in checks, the other for all other checks.
        """
        frame = frame_of(rows.select(self._reads))
        asked = [(rule, lazy) for rule, lazy in self._with_frames(frame) if rule not in self._known]
        verdicts = _together([rule.verdicts(lazy) for rule, lazy in asked]) if asked else []
        found = dict(zip([rule for rule, _ in asked], verdicts, strict=True))
        if self._known:
            known = self._renamed(frame).select(
                expression.alias(str(n)) for n, expression in enumerate(self._known.values())
            )
            found |= zip(self._known, known.get_columns(), strict=True)
        return [found[rule] for rule in self._rules]

    def _renamed(self, frame: pl.DataFrame) -> pl.DataFrame:
        """The frame with the names that checks of columns use."""
        aliases = {name: alias for name, alias in self._aliases.items() if name in frame.columns}
        return frame.rename(aliases) if aliases else frame

    def _bind(self, empty: pl.DataFrame) -> None:
        """Calls each check once, and finds the expressions of built-in ones.

        pandera binds a built-in check to polars at its first call, whose result is
        useless.
        """
        for rule, lazy in self._with_frames(empty):
            with suppress(Exception):
                rule.check(lazy, rule.key)
        renamed = self._renamed(empty)
        self._known = {
            rule: asked for rule in self._rules if (asked := _expression(rule, renamed)) is not None
        }
        read = {name for asked in self._known.values() for name in asked.meta.root_names()}
        all_known = len(self._known) == len(self._rules)
        self._reads = [
            name for name in empty.columns if not all_known or self._aliases.get(name, name) in read
        ]
        self._bound = True

    def _alone(self, rule: _Rule, frame: pl.LazyFrame, rows: int) -> pl.Series:
        why = "it must give one verdict per row, whatever the other rows of the batch are"
        try:
            (verdicts,) = _together([rule.verdicts(frame)]) or [pl.Series()]
        # the user's own code again; the error's text may hold values
        except Exception as error:  # noqa: BLE001
            why = f"it raised {type(error.__cause__ or error).__name__}"
        else:
            if _is_one_each(verdicts, rows):
                return verdicts
        raise SpecError(
            f"The check {rule.name} of {self._name} failed as a whole: {why}",
            "validate",
            "Fix the schema and run again.",
        )


def _together(found: Sequence[pl.LazyFrame | bool]) -> list[pl.Series]:
    """Collects frames of one column each; empty if one isn't a frame."""
    frames = [
        frame.select(pl.all().alias(str(n)))
        for n, frame in enumerate(found)
        if isinstance(frame, pl.LazyFrame)
    ]
    return (
        pl.concat(frames, how="horizontal").collect().get_columns()
        if len(frames) == len(found)
        else []
    )


def _is_one_each(verdicts: pl.Series, rows: int) -> bool:
    return len(verdicts) == rows and verdicts.dtype == pl.Boolean


def _aliases(names: list[str]) -> dict[str, str]:
    """Names for checks, for those columns whose names polars takes for a pattern.

    A check of `*` would judge every column.
    """
    patterns = [
        name for name in names if name == "*" or (name.startswith("^") and name.endswith("$"))
    ]
    free = (alias for i in count() if (alias := f"column_{i}") not in names)
    return dict(zip(patterns, free, strict=False))


def frame_of(rows: pa.RecordBatch) -> pl.DataFrame:
    """Rows as polars has them.

    Maps become lists of key/value structs, as the model declares them.
    """
    arrays = [a.cast(_as_list(a.type)) if pa.types.is_map(a.type) else a for a in rows.columns]
    frame = pl.from_arrow(pa.Table.from_arrays(arrays, names=rows.schema.names))
    assert isinstance(frame, pl.DataFrame)
    return frame


def _as_list(kind: pa.MapType) -> pa.DataType:
    return pa.list_(
        pa.struct(
            [pa.field("key", kind.key_type, nullable=False), pa.field("value", kind.item_type)]
        )
    )

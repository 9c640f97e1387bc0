"""Checks of a pandera model, on rows that have the model's types.

pandera defines each check, and polars computes all checks in one query. A built-in check
of a column reads that column alone; any other check may read the whole frame.

Only this module uses private parts of pandera: a check's backend and its `_check_fn`. They
are those of pandera 0.35, and any release may change them: `tests/shape/test_internals.py`
fails if one is missing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from windrow.ingest.errors import SpecError, foreign_exceptions
from windrow.ingest.ports.decoder import Refusal
from windrow.ingest.schema.user_code import import_pandera

ROW = "*"
"""Name of the column for checks of whole rows."""


@dataclass(frozen=True, eq=False)
class _Rule:
    """One check of a model.

    Attributes:
        check: pandera's check.
        index: its position among the checks of its column.
        column: the column that it checks; `ROW` for whole rows.
        key: that column's name in polars; None for whole rows.
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
        """Detail of a refusal: the check and its column, without values of the row."""
        return f"Failed {self.check.error or self.name} - at $" + (
            "" if self.key is None else f".{self.column}"
        )

    def verdicts(self, frame: pl.LazyFrame) -> pl.LazyFrame | bool:
        """Runs the check; returns pandera's lazy result.

        The result has one column. A check of the whole frame may return anything.
        """
        rows = import_pandera().PolarsData(frame, self.key or ROW)
        verdicts: pl.LazyFrame | bool = self.check.get_backend(frame)(self.check).apply(rows)
        return verdicts

    def passed(self, verdicts: pl.Series) -> pl.Series:
        """Replaces null verdicts: they pass, unless the check has `ignore_na=False`."""
        return (
            verdicts.fill_null(value=bool(self.check.ignore_na))
            if verdicts.null_count()
            else verdicts
        )


class Rules:
    """All checks of a model, in the model's order.

    pandera's own `validate` isn't used: it runs one check after the other, and its
    bookkeeping costs several times as much as the checks. Types and nulls are not checked
    here. A check with `raise_warning` refuses nothing, so it isn't run.
    """

    def __init__(self, model: type[Any]) -> None:
        import_pandera()
        # only after import_pandera()
        from pandera.api.function_dispatch import Dispatcher

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
        # pandera has no public test for a built-in check
        built_in = all(isinstance(rule.check._check_fn, Dispatcher) for rule in self._rules)  # noqa: SLF001
        checked = {rule.column for rule in self._rules}
        self._read = [name for name in schema.columns if name in checked or not built_in]
        self._bound = False

    def failures(self, rows: pa.RecordBatch) -> list[Refusal]:
        """Returns refusals of the failing rows. Each row is refused once, by the first check.

        Raises:
            SpecError: a check failed as a whole: it raised an exception, or didn't give
                one verdict per row.
        """
        if not self._rules or not rows.num_rows:
            return []
        refused_mask = np.zeros(rows.num_rows, dtype=np.bool_)
        refusals = []
        for rule, verdicts in zip(self._rules, self._verdicts(rows), strict=True):
            passed = rule.passed(verdicts)
            if not passed.all():
                failing = ~passed.to_numpy() & ~refused_mask
                refused_mask |= failing
                if failing.any():
                    refusals.append(
                        Refusal(
                            np.flatnonzero(failing), f"check:{rule.column}:{rule.name}", rule.text
                        )
                    )
        return refusals

    def _verdicts(self, rows: pa.RecordBatch) -> Sequence[pl.Series]:
        """Returns one series of verdicts per rule.

        If the common query fails, each rule runs alone, so that the error names the rule.
        """
        if not self._bound:
            self._bind(rows.slice(0, 0))
        rule_frames = self._with_frames(rows)
        try:
            verdict_columns = _collect_together(
                [rule.verdicts(frame) for rule, frame in rule_frames]
            )
        except foreign_exceptions():  # a check is the user's own code
            verdict_columns = []
        if verdict_columns and all(
            _is_one_each(verdicts, rows.num_rows) for verdicts in verdict_columns
        ):
            return verdict_columns
        return [self._run_alone(rule, frame, rows.num_rows) for rule, frame in rule_frames]

    def _with_frames(self, rows: pa.RecordBatch) -> list[tuple[_Rule, pl.LazyFrame]]:
        """Returns each rule with the frame that it checks.

        A check of whole rows sees the model's column names. A check of a column sees a
        frame in which names that polars reads as patterns have aliases.
        """
        full_frame = frame_of(rows.select(self._read))
        aliases = {name: alias for name, alias in self._aliases.items() if name in self._read}
        lazy, renamed = full_frame.lazy(), full_frame.rename(aliases).lazy()
        return [(rule, lazy if rule.key is None else renamed) for rule in self._rules]

    def _bind(self, empty: pa.RecordBatch) -> None:
        """Calls each check once on an empty frame.

        pandera binds a built-in check to polars at its first call. The result of this call
        can't be used.
        """
        for rule, frame in self._with_frames(empty):
            try:
                rule.check(frame, rule.key)
            except foreign_exceptions():
                continue
        self._bound = True

    def _run_alone(self, rule: _Rule, frame: pl.LazyFrame, rows: int) -> pl.Series:
        reason = "it must give one verdict per row, whatever the other rows of the batch are"
        try:
            (verdicts,) = _collect_together([rule.verdicts(frame)]) or [pl.Series()]
        # a check is the user's own code; the error's text may hold values
        except foreign_exceptions() as error:
            reason = f"it raised {type(error.__cause__ or error).__name__}"
        else:
            if _is_one_each(verdicts, rows):
                return verdicts
        raise SpecError(
            f"The check {rule.name} of {self._name} failed as a whole: {reason}",
            "validate",
            "Fix the schema and run again.",
        )


def _collect_together(lazy_verdicts: Sequence[pl.LazyFrame | bool]) -> list[pl.Series]:
    """Collects frames of one column each, in one query; returns [] if one isn't a frame."""
    frames = [
        frame.select(pl.all().alias(str(n)))
        for n, frame in enumerate(lazy_verdicts)
        if isinstance(frame, pl.LazyFrame)
    ]
    return (
        pl.concat(frames, how="horizontal").collect().get_columns()
        if len(frames) == len(lazy_verdicts)
        else []
    )


def _is_one_each(verdicts: pl.Series, rows: int) -> bool:
    return len(verdicts) == rows and verdicts.dtype == pl.Boolean


def _aliases(names: list[str]) -> dict[str, str]:
    """Returns aliases for columns whose names polars reads as patterns, name -> alias.

    A check of a column `*` would check every column.
    """
    patterns = [
        name for name in names if name == "*" or (name.startswith("^") and name.endswith("$"))
    ]
    free = (alias for i in count() if (alias := f"column_{i}") not in names)
    return dict(zip(patterns, free, strict=False))


def frame_of(rows: pa.RecordBatch) -> pl.DataFrame:
    """Returns rows as a polars frame.

    Maps become lists of key/value structs, as the model declares them.
    """
    arrays = [a.cast(as_list(a.type)) if pa.types.is_map(a.type) else a for a in rows.columns]
    frame = pl.from_arrow(pa.Table.from_arrays(arrays, names=rows.schema.names))
    assert isinstance(frame, pl.DataFrame)
    return frame


def as_list(kind: pa.MapType) -> pa.DataType:
    """Returns the type of a list of a map's keys and values."""
    return pa.list_(
        pa.struct(
            [pa.field("key", kind.key_type, nullable=False), pa.field("value", kind.item_type)]
        )
    )

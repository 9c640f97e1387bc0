"""The checks of a pandera model, on rows whose types are right already.

A built-in check of a column is a selection of one expression, always the same one. So
pandera is asked for it once, and each batch is only given to polars, with the columns
that such expressions read and no others. Whatever else a check is, it may look at all
of the frame, and is asked anew for each batch.
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
"""Stands for the column of a check over whole rows."""


@dataclass(frozen=True, eq=False)
class _Rule:
    """One check of a model.

    `column`: the one that it checks; `key`: its name in polars, None for whole rows.
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
        """The check's demand; quotes no value."""
        return f"Failed {self.check.error or self.name} - at $" + (
            "" if self.key is None else f".{self.column}"
        )

    def verdicts(self, frame: pl.LazyFrame) -> pl.LazyFrame | bool:
        """pandera's lazy result: one column, or anything from a check of the whole frame."""
        from pandera.api.polars.types import (
            PolarsData,
        )  # only ever after import_pandera

        found: pl.LazyFrame | bool = self.check.get_backend(frame)(self.check).apply(
            PolarsData(frame, self.key or ROW)
        )
        return found

    def passed(self, verdicts: pl.Series) -> pl.Series:
        """A null verdict passes unless the check has `ignore_na=False`, as in pandera."""
        return (
            verdicts.fill_null(value=bool(self.check.ignore_na))
            if verdicts.null_count()
            else verdicts
        )


class _Recorder:
    """A stand-in for a frame that records the expressions a built-in check selects."""

    def __init__(self) -> None:
        self.selected: list[Any] = []

    def select(self, *exprs: Any) -> Self:
        """Record the expressions."""
        self.selected += exprs
        return self


def _expression(rule: _Rule, empty: pl.DataFrame) -> pl.Expr | None:
    """The one expression that a built-in check of a column selects, if it judges each row
    by itself; else None.

    Args:
        rule: the check, which pandera has bound to polars.
        empty: the columns without rows: an aggregation gives a row even of none, which
            is how it is recognised.
    """
    from pandera.api.function_dispatch import Dispatcher  # as above
    from pandera.api.polars.types import PolarsData

    if (
        rule.key is None
        or rule.check.element_wise
        or not isinstance(rule.check._check_fn, Dispatcher)  # noqa: SLF001
    ):  # pandera has no public question for it
        return None
    recorder = _Recorder()
    try:
        data = PolarsData(recorder, rule.key)  # type: ignore[arg-type]
        found = rule.check.get_backend(empty.lazy())(rule.check).check_fn(data)
        (asked,) = recorder.selected
        judged = empty.select(asked).to_series()
    except Exception:  # it did something else with the frame: then it is given a real one  # noqa: BLE001
        return None
    return (
        asked
        if found is recorder and isinstance(asked, pl.Expr) and _is_one_each(judged, 0)
        else None
    )


class Rules:
    """All checks of a model, in its order. pandera says what each means, polars works
    all of them out at once.

    (pandera's own `validate` goes through them one after the other, with bookkeeping
    that costs several times what the checks do.) Types and nulls are not looked at
    here. A check with `raise_warning` refuses nothing, so it isn't asked.
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
        self._known: dict[_Rule, pl.Expr] = {}  # what those select that always select the same
        self._reads: list[str] = []  # the columns that any rule may look at
        self._bound = False

    def failures(self, rows: pa.RecordBatch) -> list[Refusal]:
        """Each failing row once, under the first check that it fails.

        Raises:
            SpecError: if a check fails as a whole: it raised an exception, or gave
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

    def _asked(self, frame: pl.DataFrame) -> Iterator[tuple[_Rule, pl.LazyFrame]]:
        """Each rule with the frame that it judges: a check of whole rows knows the
        columns by the names that the model gives.
        """
        lazy, renamed = frame.lazy(), self._renamed(frame).lazy()
        for rule in self._rules:
            yield rule, lazy if rule.key is None else renamed

    def _verdicts(self, rows: pa.RecordBatch) -> Sequence[pl.Series]:
        """One series per rule. If that fails, each rule by itself, to say which it was."""
        if not self._bound:
            self._bind(_frame(rows.slice(0, 0)))
        try:
            found = self._at_once(rows)
        except Exception:  # a check is the user's own code  # noqa: BLE001
            found = []
        if found and all(_is_one_each(verdicts, rows.num_rows) for verdicts in found):
            return found
        return [self._alone(rule, lazy, rows.num_rows) for rule, lazy in self._asked(_frame(rows))]

    def _at_once(self, rows: pa.RecordBatch) -> Sequence[pl.Series]:
        """All verdicts in one go."""
        frame = _frame(rows.select(self._reads))
        asked = [(rule, lazy) for rule, lazy in self._asked(frame) if rule not in self._known]
        verdicts = _together([rule.verdicts(lazy) for rule, lazy in asked]) if asked else []
        found = dict(zip([rule for rule, _ in asked], verdicts, strict=True))
        if self._known:
            known = self._renamed(frame).select(
                expression.alias(str(n)) for n, expression in enumerate(self._known.values())
            )
            found |= zip(self._known, known.get_columns(), strict=True)
        return [found[rule] for rule in self._rules]

    def _renamed(self, frame: pl.DataFrame) -> pl.DataFrame:
        """The frame under the names that checks of columns use."""
        aliases = {name: alias for name, alias in self._aliases.items() if name in frame.columns}
        return frame.rename(aliases) if aliases else frame

    def _bind(self, empty: pl.DataFrame) -> None:
        """Call each check once: pandera binds a built-in check to polars at its first call,
        whose result is of no use.
        """
        for rule, lazy in self._asked(empty):
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
        except Exception as error:  # as above; its text may hold values  # noqa: BLE001
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
    """Collect frames of one column each; empty if one isn't a frame."""
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
    """Other names, in checks of columns, for those that polars takes for a pattern: a
    check of `*` would judge every column.
    """
    patterns = [
        name for name in names if name == "*" or (name.startswith("^") and name.endswith("$"))
    ]
    free = (alias for i in count() if (alias := f"column_{i}") not in names)
    return dict(zip(patterns, free, strict=False))


def _frame(rows: pa.RecordBatch) -> pl.DataFrame:
    """The rows as polars sees them, maps as the lists of key/value structs that the
    model declares.
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

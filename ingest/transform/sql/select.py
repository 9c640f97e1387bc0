"""Parser for a SELECT over rows: its columns, the columns that they read, and its condition.

DuckDB's `json_serialize_sql` parses the query to a tree, and `json_deserialize_sql` turns
parts of the tree back into text. A star is replaced by its columns, so that each
expression gives one column.

Only this module reads the tree. The names in the tree aren't documented; they are those
of DuckDB 2.0, and `tests/shape/test_internals.py` fails if they change.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, cast

import duckdb
import msgspec

from windrow.ingest.errors import BugError, SpecError

ROWS = "rows"
"""The table that a query selects from."""

Node = dict[str, Any]

_SPARK = "a spark step sees all rows of a window together"
_REFUSED = {
    "DISTINCT_MODIFIER": f"DISTINCT looks at other rows: {_SPARK}",
    "ORDER_MODIFIER": "ORDER BY: rows keep the order of the log, and a table has none",
    "LIMIT_MODIFIER": f"LIMIT counts other rows: {_SPARK}",
    "LIMIT_PERCENT_MODIFIER": f"LIMIT counts other rows: {_SPARK}",
    "WINDOW": f"a window function looks at other rows: {_SPARK}",
    "SUBQUERY": f"a subquery looks at other rows: {_SPARK}",
    "POSITIONAL_REFERENCE": "#1 names no column: write its name",
    "PARAMETER": "no setting gives values for parameters: write the value",
}
_EXPRESSIONS = frozenset(
    [
        "BETWEEN",
        "CASE",
        "CAST",
        "COLLATE",
        "COLUMN_REF",
        "COMPARISON",
        "CONJUNCTION",
        "CONSTANT",
        "FUNCTION",
        "LAMBDA",
        "OPERATOR",
        "TYPE",
    ]
)


_SETTINGS = (
    "TimeZone='UTC'",
    "autoinstall_known_extensions=false",
    "autoload_known_extensions=false",
    "python_enable_replacements=false",
    "preserve_insertion_order=true",
    "temp_directory=''",
    "enable_external_access=false",
    # otherwise an expression that is there twice is computed outside of TRY, COALESCE and CASE
    "disabled_optimizers='common_subexpressions'",
    "lock_configuration=true",
)
"""Settings of DuckDB, in the order in which they are set.

With them a query can't read files, the network or Python variables. So the result depends
on the spec and the rows only. The settings are no protection against a malicious author.
"""


class Output(msgspec.Struct, frozen=True):
    """One column that a SELECT gives.

    Attributes:
        name: the column's name in the result.
        expression: the expression. With `unnests` it is the list.
        source: the column of the rows that is passed on unchanged; None if the column is
            computed by `expression`.
        reads: the columns of the rows that it depends on.
        unnests: whether each value of the list becomes a row.
    """

    name: str
    expression: Node
    source: str | None
    reads: frozenset[str]
    unnests: bool = False


class Select(msgspec.Struct, frozen=True):
    """A parsed SELECT over rows.

    Attributes:
        outputs: its columns.
        where: an expression that is true for the rows that are kept, else false; None if
            all rows are kept.
        condition: the WHERE as it was written; None if there is none.
        where_reads: the columns that the WHERE reads.
    """

    outputs: tuple[Output, ...]
    where: Node | None
    condition: Node | None
    where_reads: frozenset[str]

    @property
    def computed(self) -> tuple[Output, ...]:
        """The outputs that are computed by an expression."""
        return tuple(output for output in self.outputs if output.source is None)

    @property
    def unnests(self) -> bool:
        return any(output.unnests for output in self.outputs)

    @property
    def reads(self) -> frozenset[str]:
        """The columns that the WHERE and the computed outputs read."""
        return self.where_reads.union(*(output.reads for output in self.computed))


def read_select(
    query: str, columns: Sequence[str], metadata: Sequence[str], setting: str
) -> Select:
    """Parses a query.

    Args:
        query: the text.
        columns: the columns of the rows.
        metadata: columns that may be read, but aren't part of a star.
        setting: the query's place in the spec, for messages.

    Raises:
        SpecError: the query isn't one SELECT over rows, or the result of a row depends on
            more than the row. The text names all mistakes, and what to do instead.
    """
    tree = json.loads(_ask("SELECT json_serialize_sql(?::VARCHAR)", query))
    if tree["error"]:
        not_select = tree["error_type"] == "not implemented"
        names = {*columns, *metadata}
        raise _refusal(setting, ["it is no SELECT" if not_select else _mistake(tree, query, names)])
    if len(tree["statements"]) != 1:
        several = "several statements: each is a step of its own"
        raise _refusal(setting, [several if tree["statements"] else "it is empty"])
    node = tree["statements"][0]["node"]
    reader = _Reader(query, columns, metadata)
    reader.mistakes += _shape_problems(node)
    if reader.mistakes:
        raise _refusal(setting, reader.mistakes)
    where = node["where_clause"]
    reads = reader.reads(where) if where else frozenset[str]()
    outputs = tuple(reader.outputs(node["select_list"]))
    if reader.mistakes:
        raise _refusal(setting, reader.mistakes)
    return Select(outputs, None if where is None else _as_case(where), where, reads)


def line_of(node: Node, query: str) -> str:
    """Returns text with the line in which an expression begins; "" for a query of one line."""
    written, location = query.encode(), node["query_location"]
    if "\n" not in query.strip() or location > len(written):  # a node that isn't from the query
        return ""
    return f" (line {written[:location].count(10) + 1})"


def _mistake(tree: Node, query: str, names: Collection[str]) -> str:
    """Returns DuckDB's parser error, with a hint if a column's name is a reserved word of SQL."""
    message, position = str(tree["error_message"]), int(tree.get("position", 0))
    near = [
        *re.findall(r"\w+", query.encode()[:position].decode(errors="ignore"))[-1:],
        message[:-1],
    ]
    words = {word.rpartition('"')[2].casefold() for word in near} & _reserved()
    hints = [
        f': "{name}" is a word of SQL, and as a column stands in double quotes'
        for name in names
        if name.casefold() in words
    ]
    return message + line_of({"query_location": position}, query) + "".join(hints)


@cache
def _reserved() -> frozenset[str]:
    """Returns the words of SQL that name a column only in double quotes, in lower case."""
    with locked() as cursor:
        keywords = cursor.execute("SELECT keyword_name, keyword_category FROM duckdb_keywords()")
        return frozenset(word for word, kind in keywords.fetchall() if kind != "unreserved")


def query_of(expressions: Sequence[Node], where: Node | None = None) -> str:
    """Returns a SELECT of some expressions over rows, as text."""
    tree = _template("SELECT 1 FROM rows")
    node = tree["statements"][0]["node"]
    node["select_list"], node["where_clause"] = list(expressions), where
    return str(_ask("SELECT json_deserialize_sql(?::JSON)", json.dumps(tree)))


def column(name: str) -> Node:
    """Returns the expression of one column."""
    return {**_expression("SELECT a"), "column_names": [name]}


def listed(expression: Node) -> Node:
    """Returns `TRY([expression])`: null if and only if the expression fails.

    TRY without the list also gives null if the expression's own value is null.
    """
    node = _expression("SELECT TRY([a])")
    node["children"][0]["arguments"][0]["expression"] = {**expression, "alias": ""}
    return node


def _as_case(condition: Node) -> Node:
    """Returns `CASE WHEN condition THEN TRUE ELSE FALSE END`.

    Inside CASE, DuckDB computes the sides of AND and OR in the written order, and skips the
    second side if the first decides. Outside of CASE it doesn't: in a column it computes all
    sides, and in a WHERE it computes the sides in its own order.
    """
    case = _expression("SELECT CASE WHEN a THEN TRUE ELSE FALSE END")
    case["case_checks"][0]["when_expr"] = condition
    return case


class _Reader:
    """Reader of a query's expressions; it collects their mistakes in `mistakes`."""

    def __init__(self, query: str, columns: Sequence[str], metadata: Sequence[str]) -> None:
        self.mistakes: list[str] = []
        self._query = query
        self._columns = list(columns)
        # DuckDB ignores the case of column names
        self._name_by_casefold = {name.casefold(): name for name in (*metadata, *columns)}
        self.mistakes += [
            f"the column {self._name_by_casefold[name.casefold()]} and the metadata column"
            f" {name} differ by case only: rename one of them"
            for name in metadata
            if self._name_by_casefold[name.casefold()] not in {name, *metadata}
        ]

    def outputs(self, select: Sequence[Node]) -> Iterator[Output]:
        """Yields the columns of a SELECT's list; a star gives all its columns."""
        for select_node in select:
            for node in (
                self._star(select_node) if select_node["class"] == "STAR" else [select_node]
            ):
                yield self._output(node)

    def reads(self, node: object) -> frozenset[str]:
        """Returns the columns that an expression reads."""
        columns_read: set[str] = set()
        self._read(node, frozenset(), columns_read)
        return frozenset(columns_read)

    def _refuse(self, node: Node, message: str) -> None:
        self.mistakes.append(message + line_of(node, self._query))

    def _output(self, node: Node) -> Output:
        source, unnests = self._source(node), node.get("function_name") == "unnest"
        if unnests:
            if len(node["arguments"]) != 1 or node["arguments"][0]["name"]:
                self._refuse(node, "unnest has options: it takes one list")
            inner = node["arguments"][0]["expression"]
            named = {**inner, "alias": node["alias"]}
            return Output(self._name(node), named, None, self.reads(inner), unnests=True)
        return Output(node["alias"] or source or self._name(node), node, source, self.reads(node))

    def _name(self, node: Node) -> str:
        if node["alias"]:
            return str(node["alias"])
        if node["class"] == "COLUMN_REF":
            return str(node["column_names"][-1])
        text = query_of([node]).removeprefix("SELECT ").rpartition(" FROM ")[0]
        self._refuse(node, f"{text} has no name: write {text} AS name")
        return text

    def _source(self, node: Node) -> str | None:
        """Returns the column that an expression passes on unchanged; None if it computes."""
        if node["class"] != "COLUMN_REF":
            return None
        names = _without_table(node["column_names"], self._name_by_casefold)
        name = self._name_by_casefold.get(names[0].casefold())
        return name if len(names) == 1 and name in self._columns else None

    def _star(self, star: Node) -> Iterator[Node]:
        if star["columns"] or star["relation_name"] not in {"", ROWS}:
            self._refuse(star, "COLUMNS(...) and a struct's star: name the columns")
            return
        if star["qualified_exclude_list"] or any(e["key"]["table"] for e in star["rename_list"]):
            self._refuse(star, "EXCLUDE and RENAME take the columns' names alone")
            return
        without = {name.casefold() for name in star["exclude_list"]}
        replaced = {
            replacement["key"].casefold(): replacement["value"]
            for replacement in star["replace_list"]
        }
        renamed = {
            renaming["key"]["column"].casefold(): renaming["value"]
            for renaming in star["rename_list"]
        }
        known_names = {name.casefold() for name in self._columns}
        for name in sorted((without | replaced.keys() | renamed.keys()) - known_names):
            self._refuse(star, f"the star has no column {name}")
        for name in self._columns:
            key = name.casefold()
            if key not in without:
                node = replaced.get(key) or column(name)
                yield {**node, "alias": renamed.get(key, name)}

    def _read(self, node: object, lambdas: frozenset[str], columns_read: set[str]) -> None:
        """Adds the columns that an expression reads to `columns_read`.

        Args:
            node: a part of the tree.
            lambdas: the parameters of the lambda functions around it.
            columns_read: gets the names of the columns.
        """
        if isinstance(node, list):
            for child in node:
                self._read(child, lambdas, columns_read)
        elif isinstance(node, dict):
            kind = node.get("class")
            if kind == "COLUMN_REF":
                self._column(node, lambdas, columns_read)
            elif kind == "LAMBDA" and node["syntax_type"] != "SINGLE_ARROW":
                parameters: set[str] = set()
                _Reader._names(node["lhs"], parameters)
                for name in sorted(
                    parameters & {ROWS, *self._name_by_casefold}
                ):  # DuckDB may mean either
                    whose = "the rows" if name == ROWS else "a column"
                    message = f"the parameter {name} of a lambda has the name of {whose}"
                    self._refuse(node, f"{message}: call it otherwise")
                self._read(node["expr"], lambdas | parameters, columns_read)
            else:
                self._expression(node, kind)
                for child in node.values():
                    self._read(child, lambdas, columns_read)

    def _expression(self, node: Node, kind: str | None) -> None:
        if kind == "FUNCTION":
            name, (aggregates, unrepeatable) = node["function_name"], _functions()
            if node["schema"] or node["catalog"]:
                self._refuse(node, f"{node['schema']}.{name}(): write {name}({node['schema']})")
            elif name in aggregates:
                self._refuse(node, f"{name} adds other rows up: {_SPARK}")
            elif (
                name in unrepeatable
                or name.startswith("current_")  # DuckDB declares some of them as repeatable
                or (name == "age" and len(node["arguments"]) == 1)  # the age at the current time
            ):
                self._refuse(
                    node,
                    f"{name} depends on more than its arguments, and a replay must give the same"
                    " rows",
                )
            elif name in {"unnest", "unlist"}:
                self._refuse(
                    node, "unnest stands alone as a column: shape its values in the next step"
                )
        elif kind is not None and kind not in _EXPRESSIONS:
            self._refuse(node, _REFUSED.get(kind, f"{kind.lower().replace('_', ' ')} isn't read"))

    def _column(self, node: Node, lambdas: frozenset[str], columns_read: set[str]) -> None:
        name = _without_table(node["column_names"], self._name_by_casefold)[0]
        if name.casefold() in lambdas:
            return
        column_name = self._name_by_casefold.get(name.casefold())
        if column_name is None:
            text = f": a text is '{name}', in single quotes" if f'"{name}"' in self._query else ""
            self._refuse(
                node,
                f"there is no column {name}{text}, there are"
                f" {', '.join(self._name_by_casefold.values())}",
            )
        else:
            columns_read.add(column_name)

    @staticmethod
    def _names(node: object, parameters: set[str]) -> None:
        """Adds the names of a lambda's parameters to `parameters`, in lower case."""
        if isinstance(node, list):
            for child in node:
                _Reader._names(child, parameters)
        elif isinstance(node, dict):
            names = node["column_names"] if node.get("class") == "COLUMN_REF" else ()
            parameters.update(name.casefold() for name in names)
            for child in node.values():
                _Reader._names(child, parameters)


def _without_table(names: list[str], known_names: Mapping[str, str]) -> list[str]:
    qualified = len(names) > 1 and names[0].casefold() == ROWS and ROWS not in known_names
    return names[1:] if qualified else names


def _shape_problems(node: Node) -> Iterator[str]:
    """Yields a problem for each part of a query that isn't a column, `rows` or the WHERE."""
    if node["type"] != "SELECT_NODE":
        yield "UNION and its like bring other rows: a step has one SELECT"
        return
    table = node["from_table"]
    is_rows = table["type"] == "BASE_TABLE" and table["table_name"].casefold() == ROWS
    if (
        not is_rows
        or table["alias"]
        or table["schema_name"]
        or table["sample"]
        or table["at_clause"]
    ):
        yield f"it must be FROM {ROWS}, alone and without another name: joins are for a spark step"
    if node["cte_map"]["map"]:
        yield "WITH: write what it says as a step before this one"
    grouped = node["group_expressions"] or node["aggregate_handling"] != "STANDARD_HANDLING"
    if grouped or node["having"] or node["qualify"]:
        yield f"GROUP BY, HAVING and QUALIFY look at other rows: {_SPARK}"
    if node["sample"]:
        yield f"a sample looks at other rows: {_SPARK}"
    for modifier in node["modifiers"]:
        yield _REFUSED.get(modifier["type"], modifier["type"])


def _refusal(setting: str, mistakes: Sequence[str]) -> SpecError:
    return SpecError(
        f"{setting} can't be used: " + "; ".join(dict.fromkeys(mistakes)),
        "spec",
        "A sql step is one SELECT of columns over rows, with a WHERE and unnest if it needs them."
        " Nothing was read.",
    )


@cache
def _database() -> duckdb.DuckDBPyConnection:
    """Opens the only DuckDB of this process. Opening one takes longer than a small batch."""
    con = duckdb.connect(":memory:", config={"threads": 1})
    for setting in _SETTINGS:
        con.execute(f"SET GLOBAL {setting}")
    return con


def locked() -> duckdb.DuckDBPyConnection:
    """Opens a connection to DuckDB. It sees only the tables that are registered with it."""
    return _database().cursor()


def broken(error: duckdb.Error) -> BugError:
    """Returns the error to raise, and drops the DuckDB of this process.

    After such an error the database may answer no query any more. The next call of `locked`
    opens a new one.
    """
    _database.cache_clear()
    return BugError.of(error, "validate")


@cache
def _functions() -> tuple[frozenset[str], frozenset[str]]:
    """Returns names of aggregates, and of functions that depend on more than their arguments.

    A macro is among the latter if its text calls a function of either kind, or reads other
    rows.
    """
    with locked() as cursor:
        functions = cursor.execute(
            "SELECT function_name, function_type, stability, macro_definition,"
            " CASE WHEN macro_definition IS NOT NULL"
            " THEN json_serialize_sql('SELECT ' || macro_definition)::VARCHAR END"
            " FROM duckdb_functions() WHERE function_type IN ('scalar', 'aggregate', 'macro')"
        ).fetchall()
    aggregates = {name for name, kind, *_ in functions if kind == "aggregate"}
    others = {
        name
        for name, kind, stability, *_ in functions
        if kind != "macro" and stability != "CONSISTENT"  # an unknown stability counts, too
    }
    macros = {name: json.loads(text) for name, *_, text in functions if text is not None}
    while True:
        dependent_macros = {
            name for name, tree in macros.items() if _has(tree, aggregates | others)
        }
        if dependent_macros <= others:
            return frozenset(aggregates), frozenset(others)
        others |= dependent_macros


def _has(tree: object, names: set[str]) -> bool:
    """Returns whether a query has one of these functions, a subquery, or the current time."""
    if isinstance(tree, list):
        return any(_has(child, names) for child in tree)
    if not isinstance(tree, dict):
        return False
    function, columns = tree.get("function_name"), tree.get("column_names") or [""]
    return (
        function in names
        or function in {"unnest", "unlist"}
        or tree.get("class") == "SUBQUERY"
        or columns[0].startswith("current_")
        or any(_has(child, names) for child in tree.values())
    )


def _ask(question: str, text: str) -> Any:
    with locked() as cursor:
        return cursor.execute(question, [text]).fetchall()[0][0]


@cache
def _serialize(query: str) -> str:
    return str(_ask("SELECT json_serialize_sql(?::VARCHAR)", query))


def _template(query: str) -> Node:
    return cast("Node", json.loads(_serialize(query)))


def _expression(query: str) -> Node:
    return cast("Node", _template(query)["statements"][0]["node"]["select_list"][0])

"""The `sql` step: one SELECT over the rows, by DuckDB."""

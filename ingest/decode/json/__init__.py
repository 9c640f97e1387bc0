"""JSON: most messages at once by DuckDB, every other one strictly, by the columns of one pandera model."""

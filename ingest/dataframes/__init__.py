"""Data sources of Spark: exact ranges of topics as DataFrames, and rows written to topics."""

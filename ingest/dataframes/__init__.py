"""Spark data source and sink: exact ranges of topics as DataFrames, and rows into topics."""

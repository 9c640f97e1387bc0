"""Spark's side of the topics: exact ranges of them as a DataFrame, for what needs Spark itself."""

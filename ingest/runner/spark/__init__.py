"""Spark: how it is started, jobs, and the code that workers run."""

"""Spark: sessions, jobs, and the code that workers run."""

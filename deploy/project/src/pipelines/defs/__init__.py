"""The pipelines: one folder each."""

"""The `spark` step: a function from a DataFrame to a DataFrame, which `ingest.runner` calls."""

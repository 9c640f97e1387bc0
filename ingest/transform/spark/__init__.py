"""The `spark` step: a function from DataFrame to DataFrame. `ingest.runner` calls it."""

"""The pipelines that the containers run. Each has a folder in `defs`."""

"""The pipelines that the containers run: each has a folder below `defs`."""

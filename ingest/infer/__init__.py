"""Inference of a pipeline's files from a topic's messages or a registry's schemas."""

"""Observers: where figures of runs are told."""

"""Observers: the destinations of figures about runs."""

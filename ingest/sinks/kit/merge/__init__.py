"""Merges windows into tables with a primary key whose rows are in files, divided by buckets."""

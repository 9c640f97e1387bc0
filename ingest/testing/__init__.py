"""Public test doubles: a cluster, a table and an engine in memory; and a checker of tables."""

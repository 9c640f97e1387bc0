"""Public twins for tests: in-memory broker and table, and the checker."""

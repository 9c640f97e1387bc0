"""The demo's second pipeline: a shop's customers, by the changes of their rows."""

"""The demo's pipeline: a shop's orders."""

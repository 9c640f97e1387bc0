"""A shop's orders."""

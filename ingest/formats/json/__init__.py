"""JSON: most messages in one compiled pass, every other one strictly."""

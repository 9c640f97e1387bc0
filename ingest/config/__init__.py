"""The models of a spec and of a windrow.yaml, for YAML, Python and the command."""

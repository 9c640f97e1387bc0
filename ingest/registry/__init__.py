"""A schema registry: everything that speaks to one."""

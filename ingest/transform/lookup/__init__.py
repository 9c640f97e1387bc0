"""Steps that look columns up in a table or a service."""

"""How any setting is written and checked: YAML within bounds, templates, kinds of values, places.

Knows no section and no option.
"""

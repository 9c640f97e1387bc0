"""Avro, a record a message, with the writer's schema told in the spec: most messages in
one compiled pass, every other one strictly.
"""

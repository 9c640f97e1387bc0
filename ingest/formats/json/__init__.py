"""JSON: a compiled pass decodes most messages, and a strict decoder every other message."""

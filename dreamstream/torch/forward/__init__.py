"""torch's functions on streams inside a forward."""

"""torch's own operators, called as the plain references are: (attributes, weights, *inputs of one stream)."""

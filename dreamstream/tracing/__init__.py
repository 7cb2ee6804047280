"""Private copies of functions."""

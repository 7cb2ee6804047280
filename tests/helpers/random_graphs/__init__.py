"""Random models, written as a user would write them, and what the laws ask of each.

`drafts` writes a model, `totals` counts its frames, `drivers` stream it in both modes, `trial` runs
random calls and compares, `futures` finds by brute force what could have been said.
"""

"""Graphs of several calls: which streams are joined, and when outputs may leave."""

"""Counts what a node does, and writes it as metrics."""

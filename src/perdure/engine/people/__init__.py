"""Checks again who may speak and how often, and tells operators of faults that only they can
fix."""

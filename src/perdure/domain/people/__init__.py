"""Decides who may speak, how much they may have, and what they may spend."""

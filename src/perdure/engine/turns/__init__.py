"""Runs turns, from the claim to the settlement."""

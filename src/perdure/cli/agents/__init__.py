"""Implements `perdure agents`: shows agents, and tries them."""

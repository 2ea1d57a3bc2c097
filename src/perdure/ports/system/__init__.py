"""Describes time, randomness and file descriptors, as the rest may ask for them."""

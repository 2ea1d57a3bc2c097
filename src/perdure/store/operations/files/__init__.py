"""Keeps files, and brings them to the turns that wait for them."""

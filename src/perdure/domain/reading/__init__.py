"""Finds out from the bytes of a file what kind of file it is and what text it contains."""

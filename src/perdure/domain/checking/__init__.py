"""Checks what must hold of everything that is stored."""

"""Holds what is common to both wires about models that reason."""

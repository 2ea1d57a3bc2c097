"""Carries out commands inside the transaction that accepts them, one module for each subject."""

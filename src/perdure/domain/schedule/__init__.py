"""Decides when jobs run: rules of recurrence, times in plain words, and what becomes of each
occurrence."""

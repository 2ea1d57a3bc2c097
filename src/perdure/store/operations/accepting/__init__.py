"""Accepts updates: one transaction from what a person did to what it becomes."""

"""Answers offline, without a model, and always in the same way."""

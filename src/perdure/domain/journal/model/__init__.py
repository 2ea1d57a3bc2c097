"""Describes what events hold about the model that was asked: how, what that took, and its
thoughts."""

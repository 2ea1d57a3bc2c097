"""Keeps who may speak, what is remembered about people, and what they have used."""

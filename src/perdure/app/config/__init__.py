"""Reads and checks the configuration, and says what is wrong with it."""

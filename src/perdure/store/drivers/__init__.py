"""Runs the store's operations on SQLite and on PostgreSQL."""

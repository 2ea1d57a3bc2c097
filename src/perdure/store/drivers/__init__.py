"""Runs operations on SQLite and on PostgreSQL."""

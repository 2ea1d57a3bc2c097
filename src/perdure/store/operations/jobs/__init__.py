"""Reads and writes the rows of jobs and of their runs."""

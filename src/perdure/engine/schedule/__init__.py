"""Starts the runs of jobs when they are due."""

"""Defines the port of jobs."""

"""Handles commands about jobs."""

"""Collects what a model answers: text, thoughts and tool calls."""

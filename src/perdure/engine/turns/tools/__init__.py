"""Runs the tool calls of turns, after people were asked about them."""

"""Decides which tool calls may run, who is asked first, and how their results are told."""

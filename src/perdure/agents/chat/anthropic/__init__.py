"""Speaks the Anthropic messages wire: requests out, streams in."""

"""Knows what Slack refuses, and until when it wants no more calls."""

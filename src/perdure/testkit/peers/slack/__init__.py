"""Provides peers that stand for Slack in tests."""

"""Provides peers that stand for Discord in tests."""

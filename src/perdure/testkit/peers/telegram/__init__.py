"""Provides peers that stand for Telegram in tests."""

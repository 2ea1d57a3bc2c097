"""Reads what people on Telegram say and send."""

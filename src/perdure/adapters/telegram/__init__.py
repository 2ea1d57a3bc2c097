"""Telegram: one bot, spoken to through the Bot API."""

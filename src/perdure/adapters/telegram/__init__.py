"""Connects one bot to Telegram, through the Bot API."""

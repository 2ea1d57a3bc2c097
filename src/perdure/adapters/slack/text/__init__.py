"""Reads and writes the texts of Slack messages: markup, mentions and emoji."""

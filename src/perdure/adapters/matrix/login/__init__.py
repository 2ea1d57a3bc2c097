"""Signs the bot in, and keeps its login and its position in the sync."""

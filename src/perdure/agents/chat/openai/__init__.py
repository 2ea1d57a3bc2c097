"""Speaks the OpenAI chat-completions wire: requests out, streams in."""

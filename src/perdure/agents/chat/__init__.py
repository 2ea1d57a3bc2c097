"""Runs turns with a model behind the OpenAI or the Anthropic wire."""

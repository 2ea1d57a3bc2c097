"""The chat agent: a model behind the OpenAI or the Anthropic wire."""

"""Lets editors talk in Perdure's conversations, over the Agent Client Protocol (`perdure acp`)."""

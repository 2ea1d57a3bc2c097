"""Gets an answer from a model: chooses the agent, builds the request, checks the budget, and
decides when to try again."""

"""Gets an answer from a model: which agent, with which request, within which budget, and when to
try again."""

"""Implements the ports of turns: the inbox, what runners write, questions to people, budgets."""

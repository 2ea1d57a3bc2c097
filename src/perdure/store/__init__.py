"""Holds everything that speaks SQL: the journal, the inbox, the outbox, leases, budgets and
files."""

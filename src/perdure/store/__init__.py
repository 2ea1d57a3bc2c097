"""The store: journal, inbox, outbox, leases, schedule and budgets, and all of the SQL."""

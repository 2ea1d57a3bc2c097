"""Leads one node through its life, from joining the others to its bounded end."""

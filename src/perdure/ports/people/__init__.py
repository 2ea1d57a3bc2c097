"""Describes the ports that know people: who they are, where they are, what they may do."""

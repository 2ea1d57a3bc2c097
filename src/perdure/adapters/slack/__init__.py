"""Slack: one bot of one workspace, over Socket Mode or the Events API."""

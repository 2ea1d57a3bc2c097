"""Connects Perdure to Slack: one bot in one workspace, over Socket Mode or the Events API."""

"""Lets programs talk to agents by signed HTTP requests. Answers are posted back, or polled for."""

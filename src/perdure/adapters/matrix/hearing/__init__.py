"""Reads what people in Matrix rooms say and send, and which rooms there are."""

"""The tools: what an agent may call through the gateway, and the record of each call."""

"""Provides servers that speak MCP, the protocol of tools: some by others, and a hostile one."""

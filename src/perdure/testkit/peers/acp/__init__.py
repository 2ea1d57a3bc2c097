"""Provides agents that speak ACP, the protocol of agents: some by others with the model that they
ask, and a hostile one."""

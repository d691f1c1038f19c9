"""The options of commands, and the agents, policies and environments that they configure."""

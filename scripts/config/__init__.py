"""The options of commands, and what they configure: agents, policies and environments."""

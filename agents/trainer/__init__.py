"""The loop of every agent (collect, update, log), and what is done around it."""

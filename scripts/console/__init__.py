"""The terminal: how a command is declared, what it prints, and how it fails."""

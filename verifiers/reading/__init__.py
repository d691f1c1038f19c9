"""Reading what models write: which answer a completion states. Every function takes any text."""

"""Listed problems: in memory, or in a large file of lines, of which only an index is in memory."""

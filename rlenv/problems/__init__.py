"""Where problems come from: a seeded stream, files of rows, a curriculum."""

"""numeric: a number, compared within a tolerance."""

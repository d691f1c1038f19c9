"""math: formulas, compared symbolically."""

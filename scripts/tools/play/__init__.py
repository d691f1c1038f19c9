"""rlenv play: choose the actions yourself, or watch a policy choose them."""

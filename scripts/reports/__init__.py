"""`rlenv report`: one page about one run or several, which opens from disk."""

"""The models of language policies: which are supported, how they are loaded, adapted and exported."""

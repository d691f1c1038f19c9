"""Between text and token ids: tokenizers, chat templates, stop tokens, lengths."""

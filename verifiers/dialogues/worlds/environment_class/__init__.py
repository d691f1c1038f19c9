"""The verifier "environment": classes as TRL's `environment_factory` takes them."""

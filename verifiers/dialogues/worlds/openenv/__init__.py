"""The verifier "openenv": environments that an OpenEnv server runs."""

"""From a rollout to new weights: the loss, the optimizer and what is added to rewards."""

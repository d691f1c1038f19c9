"""From options and config files to the settings of a run."""

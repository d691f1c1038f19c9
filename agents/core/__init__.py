"""What every other folder uses: rollouts as data, devices, checks of arguments, files, names of settings."""

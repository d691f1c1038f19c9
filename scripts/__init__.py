"""The commands, one file each; installed under a private name and reached through the console command `rlenv`."""

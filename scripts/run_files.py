"""Names of files in a run folder; this module imports nothing, so that commands that only read start at once."""

CONFIG, RESULT, SAMPLES = "config.json", "result.json", "samples.md"
CSV = "progress.csv"

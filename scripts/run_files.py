"""Names of files in a run folder; this module imports nothing, so that commands that only read start at once."""

CONFIG, RESULT, REPORT = "config.json", "result.json", "report.html"
CSV = "progress.csv"
SAMPLES, EPISODES = "samples.md", "samples.jsonl"

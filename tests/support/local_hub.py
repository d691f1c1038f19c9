"""A hub in a folder: `datasets.load_dataset` reads its files, under the names and revisions of the hub."""

import json

import datasets
from datasets.exceptions import DatasetNotFoundError
from task_rows import rows_of

from rlenv import hub
from rlenv.tasks import TASKS


def serve(monkeypatch, folder, name, splits, revision=None):
    """Have `hf:name` of this revision be these rows, by split; return the names that were loaded, as they come.

    Args:
        name: "org/name", or with a config "org/name/config".
    """
    (folder / "hub").mkdir()
    files = {split: str(folder / "hub" / f"{split}.jsonl") for split in splits}
    for split, rows in splits.items():
        (folder / "hub" / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    real, loaded = datasets.load_dataset, []

    def load_dataset(path, config=None, revision=None):
        repo = path.removeprefix("hf://datasets/")
        assert repo != path, "a name without this prefix may be a local folder"
        loaded.append(f"{'/'.join(filter(None, (repo, config)))}@{revision}")
        if not name.startswith(repo):
            raise DatasetNotFoundError(f"Dataset '{repo}' doesn't exist on the Hub or cannot be accessed.")
        if config is None and name.count("/") == 2:
            raise ValueError("Config name is missing.\nPlease pick one among the available configs: ['main']\nExample")
        if name != "/".join(filter(None, (repo, config))):
            raise ValueError(f"BuilderConfig '{config}' not found. Available: ['{name.rpartition('/')[2]}']")
        if revision != expected:
            raise DatasetNotFoundError(f"Revision '{revision}' doesn't exist for dataset '{repo}' on the Hub.")
        return real("json", data_files=files, cache_dir=str(folder / "cache" / str(revision)))

    expected = revision
    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    return loaded


def serve_task(monkeypatch, folder, name):
    """Have the data set of a task be its twenty rows, under its own revision alone; return what was loaded."""
    repo, config, revision = hub.parts(TASKS[name].problems)
    return serve(monkeypatch, folder, "/".join(filter(None, (repo, config))), rows_of(name), revision)

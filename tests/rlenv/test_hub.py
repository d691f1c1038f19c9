"""Data sets of the hub, and what is wrong with one, in one line; nothing is downloaded here."""

import json
import shutil
from pathlib import Path

import datasets
import pytest
from datasets.packaged_modules.json.json import Json
from huggingface_hub import constants
from local_hub import serve
from refused import check_refused

from rlenv.problems import load_problems
from rlenv.task import TextGenTask

COMMIT, OTHER = "0123456789abcdef" * 2 + "01234567", "f" * 40
SPLITS = {
    "train": [{"question": f"{n}+1=", "answer": str(n + 1)} for n in range(4)],
    "test": [{"question": f"{n}+2=", "answer": str(n + 2)} for n in range(3)],
    "prompt": [{"question": "0+0=", "answer": "0"}],  # of MBPP: examples, neither trained nor tested on
}
NAME, COLUMNS = f"hf:org/sums/main@{COMMIT}", {"prompt": "question"}


def test_a_data_set_has_the_problems_and_splits_of_the_same_rows_in_memory(tmp_path, monkeypatch):
    loaded = serve(monkeypatch, tmp_path, "org/sums/main", SPLITS, COMMIT)
    rows = [row | {"split": split, "prompt": row["question"]} for split in ("train", "test") for row in SPLITS[split]]
    found = load_problems(NAME, COLUMNS)
    assert [(each.prompt, each.answer, each.metadata["split"]) for each in found] == [
        (row["prompt"], row["answer"], row["split"]) for row in rows
    ]
    assert loaded == [f"org/sums/main@{COMMIT}"] and found.place(4) == f"{NAME!r}, row 1 of 'test'"
    test = TextGenTask("exact", problems=NAME, columns=COLUMNS, tokenizer="train:260", split="test", test_fraction=0.0)
    assert {each.prompt for each in test.stream.listed} == {"0+2=", "1+2=", "2+2="}


def test_a_single_split_is_divided_by_the_hash_as_a_file_is(tmp_path, monkeypatch):
    rows = [{"prompt": f"{n}+{n}="} for n in range(40)]
    serve(monkeypatch, tmp_path, "org/sums", {"test": rows})
    datasets.DatasetDict(test=datasets.Dataset.from_list(rows)).save_to_disk(tmp_path / "copy")
    for problems in ("hf:org/sums", tmp_path / "copy"):
        made = {"problems": problems, "tokenizer": "train:260"}
        listed = {split: TextGenTask("exact", **made, split=split).stream.listed for split in ("train", "test")}
        found = {split: [each.prompt for each in problems] for split, problems in listed.items()}
        assert 0 < len(found["test"]) < len(found["train"])
        assert sorted(found["train"] + found["test"]) == sorted(row["prompt"] for row in rows)


IMPOSSIBLE = (
    *("hf:../..", "hf:./sums", "hf:org/..", "hf:org/.sums", "hf:-org/sums", "hf:org/s--ums", "hf:\u00f6rg/sums"),
    *("hf:org/sums/..", "hf:org/sums/*", "hf:/tmp", "hf:org/sums@", "hf:org/sums\n"),
)


@pytest.mark.parametrize(
    ("name", "named"),
    [
        *((name, (repr(name), "hf:org/name", "./FOLDER")) for name in IMPOSSIBLE),
        ("hf:sums", ("'hf:sums'", "hf:org/name/config")),
        ("hf:org/zums", ("'org/zums' doesn't exist", "'hf:org/zums'")),
        ("hf:org/sums", ("Config name is missing. Please pick one among the available configs: ['main'];", "/CONFIG")),
        (f"hf:org/sums/mian@{COMMIT}", ("'mian' not found. Available: ['main']", "hf:org/name/CONFIG")),
        (f"hf:org/sums/main@{OTHER}", (f"Revision '{OTHER}' doesn't exist",)),
        (NAME, ("no column 'prompt'", "'question'", "--column prompt=")),
    ],
)
def test_what_is_wrong_with_a_name_is_one_line(tmp_path, monkeypatch, name, named):
    loaded = serve(monkeypatch, tmp_path, "org/sums/main", SPLITS, COMMIT)
    check_refused(load_problems, {"path": name}, named)
    assert name not in IMPOSSIBLE or loaded == [], "nothing is loaded before"


def test_a_local_folder_of_the_same_name_is_not_taken_for_a_data_set_of_the_hub(tmp_path, monkeypatch):
    folder = tmp_path / "org" / "sums"
    folder.mkdir(parents=True)
    (folder / "train.jsonl").write_text('{"question": "0+0=", "answer": "0"}\n')
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    for name in ("hf:org/sums", f"hf:org/sums@{COMMIT}"):
        check_refused(
            load_problems, {"path": name, "columns": COLUMNS}, (repr(name), "without network", "--problems FOLDER")
        )


def test_without_network_the_cache_is_read_but_no_other_revision(tmp_path, monkeypatch, capfd):
    path = tmp_path / "train.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in SPLITS["train"]))
    made = Json(str(tmp_path), "sums", "main", hash=COMMIT, data_files=str(path))  # as if it came from the hub
    made.download_and_prepare()
    config = Path(made.cache_dir).parents[1]
    shutil.move(config, tmp_path / "cache" / "org___sums" / "main")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    capfd.readouterr()
    assert [each.answer for each in load_problems(NAME, COLUMNS)] == ["1", "2", "3", "4"]
    check_refused(load_problems, {"path": f"hf:org/sums/main@{OTHER}"}, (OTHER, f"another revision, {COMMIT}"))
    assert capfd.readouterr().err == ""

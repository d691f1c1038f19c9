"""Listed problems: which prompts are too long and what is encoded to know it; files that are mapped into memory."""

import json
import pickle
import warnings

import pytest
from chat_families import chatml, llama2
from datasets import Dataset, DatasetDict
from tokenizers import normalizers

from rlenv import lengths
from rlenv.encoder import Encoder
from rlenv.problems import Problems, load_problems
from rlenv.task import TextGenTask
from rlenv.tokenizer import character_tokenizer, train_tokenizer
from verifiers import Exact, Problem

SUMS = [
    {"prompt": f"{n}+{n % 7}=", "answer": str(n + n % 7), "level": 1 + n % 3, "split": (None, "train", "test")[n % 3]}
    for n in range(60)
]
TEXTS = [f"{'very ' * (n % 9)}long é字 {'?' * (n % 5)}" for n in range(90)]


def normalizing():
    tokenizer = train_tokenizer(270, TEXTS)
    tokenizer.backend_tokenizer.normalizer = normalizers.Replace("é", "<very long>")
    return tokenizer


def longer():
    tokenizer = chatml()
    tokenizer.chat_template = tokenizer.chat_template.replace("{{ text }}", "{{ text | replace('?', '(what?)') }}")
    return tokenizer


ENCODERS = {
    "characters": lambda: Encoder(character_tokenizer("".join(TEXTS))),
    "bytes": lambda: Encoder(train_tokenizer(270, TEXTS)),
    "normalized to longer texts": lambda: Encoder(normalizing()),
    "chat": lambda: Encoder(chatml(), chats_texts=True),
    "chat with longer contents": lambda: Encoder(longer(), chats_texts=True),
    "words": lambda: Encoder(llama2()),
}


@pytest.mark.parametrize("read", [0, lengths.READ])
@pytest.mark.parametrize("name", ENCODERS)
def test_prompts_that_fit_are_those_with_few_enough_tokens(name, read, monkeypatch):
    monkeypatch.setattr(lengths, "READ", read)
    encoder, problems = ENCODERS[name](), list(map(Problem, TEXTS))
    exact = [len(ids) for ids in encoder.prompts(TEXTS)]
    listed = Problems.of(problems).surveyed(Exact(), encoder)
    for limit in sorted({*exact})[:-1:3]:
        with pytest.warns(UserWarning, match=f"of 90 prompts have more than {limit} tokens"):
            kept, longest = lengths.with_short_prompts(listed, encoder, limit, skips=True)
        assert list(kept) == [each for each, length in zip(problems, exact, strict=True) if length <= limit]
        assert max(n for n in exact if n <= limit) <= longest <= limit
    kept, longest = lengths.with_short_prompts(listed, encoder, 1000, skips=True)
    assert len(kept) == len(problems) and longest >= max(exact) and (longest == max(exact) or not read)


def test_only_prompts_that_may_be_too_long_are_encoded(monkeypatch):
    monkeypatch.setattr(lengths, "READ", 0)
    encoder, seen = Encoder(train_tokenizer(270, TEXTS)), []
    ids = encoder.ids
    monkeypatch.setattr(encoder, "ids", lambda texts, *more, **named: seen.extend(texts) or ids(texts, *more, **named))
    prompts = [
        *(f"{n:02}".ljust(30, "a") for n in range(20)),
        "very " * 5,
        "b" * 10**6,
        *("c" * n for n in range(1, 20)),
    ]
    listed = Problems.of(prompts).surveyed(Exact(), encoder)
    with pytest.warns(UserWarning, match="21 of 41 prompts"):
        kept, longest = lengths.with_short_prompts(listed, encoder, 20, skips=True)
    assert [problem.prompt for problem in kept] == [prompts[20], *prompts[22:]] and longest == 19
    assert {*seen} == {"a", *prompts[:21]}, "`a` shows what the tokenizer adds"


def test_long_prompts_are_left_out_before_the_split_and_said_once():
    listed = [{"prompt": "a" * (1020 + n), "split": ("train", "test")[n % 2]} for n in range(10)]
    with pytest.warns(UserWarning, match=r"^5 of 10 prompts have more than 1024 tokens \(max_prompt_tokens\)") as said:
        task = TextGenTask("exact", problems=listed, max_new_tokens=4)
    assert len(said) == 1 and (task.encoding.skipped_prompts, task.stream.sizes) == (5, {"train": 3, "test": 2})
    assert (task.max_prompt_tokens, task.max_length) == (1024, 1028)


def posed(**settings):
    """Return what a task says of its problems, poses after verdicts, and warns of."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        task = TextGenTask("exact", test_fraction=0.5, tokenizer="train:260", **settings)
        found = []
        for n in range(70):
            found.append(task.stream[n])
            task.stream.record(found[-1], n % 3 > 0)
    limits = task.max_prompt_tokens, task.max_new_tokens, task.encoding.skipped_prompts, task.stream.sizes
    return found, list(task.stream.listed), limits, task.prompts(range(9)), [str(each.message) for each in said]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """The same problems in memory, in a Parquet file, and in a folder of `datasets`."""
    folder = tmp_path_factory.mktemp("files")
    (folder / "p.jsonl").write_text("".join(json.dumps(row) + "\n" for row in SUMS))
    Dataset.from_list(SUMS).to_parquet(folder / "p.parquet")
    Dataset.from_list(SUMS).save_to_disk(folder / "set")
    return folder


@pytest.mark.parametrize("name", ["p.parquet", "set"])
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"split": "test", "template": "{prompt}?"},
        {"curriculum": 0.5, "max_prompt_tokens": 5},
        {"prompt_choice": "thompson", "columns": {"answer": "prompt"}},
    ],
)
def test_mapped_problems_are_those_in_memory(files, name, settings):
    mapped = load_problems(files / name)
    assert mapped.make is not None and list(pickle.loads(pickle.dumps(mapped))) == list(mapped)
    assert posed(problems=files / name, **settings) == posed(problems=files / "p.jsonl", **settings)


def test_the_splits_of_a_mapped_folder_are_counted_one_after_the_other(tmp_path):
    parts = {name: Dataset.from_list([{"prompt": f"{name}{n}"} for n in range(3)]) for name in ("test", "train")}
    DatasetDict(parts).save_to_disk(tmp_path / "set")
    mapped = load_problems(tmp_path / "set")
    assert [mapped[index].prompt for index in range(6)] == [problem.prompt for problem in mapped]
    assert mapped.place(4) == f"{str(tmp_path / 'set')!r}, row 2 of 'train'"


def test_a_tokenizer_of_characters_refuses_what_is_not_read_as_a_whole(files):
    with pytest.raises(ValueError, match=r"p\.parquet.*--tokenizer train:2000"):
        TextGenTask("exact", problems=files / "p.parquet")


@pytest.mark.parametrize("change", ["file", "columns", "template", "limit"])
@pytest.mark.parametrize("name", ["p.jsonl", "p.parquet", "set"])
def test_other_problems_are_refused_on_resume(tmp_path, name, change):
    def write(rows):
        if name == "p.jsonl":
            (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
        elif name == "set":
            Dataset.from_list(rows).save_to_disk(tmp_path / name)
        else:
            Dataset.from_list(rows).to_parquet(tmp_path / name)

    def stream(**settings):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return TextGenTask("exact", problems=tmp_path / name, tokenizer="train:260", **settings).stream

    write(SUMS)
    state = stream().state_dict()
    stream().load_state_dict(state)
    if change == "file":
        write([*SUMS[:-1], {**SUMS[-1], "answer": "0"}])
    others = {
        "file": {}, "columns": {"columns": {"answer": "prompt"}}, "template": {"template": "{prompt}"},
        "limit": {"max_prompt_tokens": 4},
    }  # fmt: skip
    with pytest.raises(ValueError, match="problems have changed"):
        stream(**others[change]).load_state_dict(state)

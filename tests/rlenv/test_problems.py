"""Problems from lists and files: read once, split by what they are, left out if they are too long, and counted."""

import csv
import json
import pickle

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from chat_families import chatml
from datasets import Dataset, DatasetDict
from drawn import drawn
from hypothesis import HealthCheck, example, given
from hypothesis import strategies as st

from rlenv import encoding
from rlenv.encoder import Encoder
from rlenv.forms import ProblemFile
from rlenv.preference_pairs import Pair, encode_pairs, load_pairs, split_pairs
from rlenv.problems import Prompt, listed_problems, load_problems, side_of
from rlenv.stream import ProblemStream
from rlenv.task import TextGenTask
from rlenv.tokenizer import CHATML, train_tokenizer
from rlenv.verifiers import Arith, Exact, Problem
from rlenv.verifiers.text import hashed

SUMS = [Problem("1+1=", "2"), Problem("2+3=", "5")]
STRANGE = "e\u0301 é 字 🙂\u200d🙂 שלום \u202eabc \x00\x07\x1f\x7f \x85\u2028\u2029 \ufeff \r\n\r\n\t\"' {x} <eos>"
USER = {"role": "user", "content": "1+1="}
ANSWER = {"role": "assistant", "content": "2"}
TALK = [{"role": "system", "content": "Add."}, USER, {"role": "assistant", "content": STRANGE}, USER]


def write_lines(path, rows, **options):
    path.write_text("".join(json.dumps(row, **options) + "\n" for row in rows), encoding="utf-8", newline="")
    return path


def write_csv(path, rows):
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), delimiter="\t" if path.suffix == ".TSV" else ",")
        writer.writeheader()
        writer.writerows(rows)


WRITERS = {
    "p.jsonl": write_lines,
    "p.ndjson": lambda path, rows: write_lines(path, rows, ensure_ascii=False),
    "p.json": lambda path, rows: path.write_text(json.dumps(rows), encoding="utf-8"),
    "p.csv": write_csv,
    "P.TSV": write_csv,
    "p.parquet": lambda path, rows: pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path),
    "folder": lambda path, rows: Dataset.from_list(rows).save_to_disk(path),
}


@pytest.mark.parametrize("name", WRITERS)
@drawn(4, suppress_health_check=[HealthCheck.function_scoped_fixture])
@example([(STRANGE, STRANGE[::-1], STRANGE)])
@given(texts=st.lists(st.tuples(st.text(min_size=1), st.text(), st.text()), min_size=1, max_size=4))
def test_any_text_that_was_written_is_read(tmp_path, name, texts):
    """But for NUL in CSV and TSV, which is refused: it comes from files that are no text."""
    if name in ("p.csv", "P.TSV"):
        texts = [tuple(text.replace("\0", "0") for text in row) for row in texts]
    WRITERS[name](tmp_path / name, [dict(zip(("prompt", "answer", "note"), row, strict=True)) for row in texts])
    expected = [Problem(prompt, answer, {"note": note}) for prompt, answer, note in texts]
    assert list(load_problems(tmp_path / name)) == expected


BOM = b"\xef\xbb\xbf"
LEVELED = Problem("a", metadata={"split": "train", "level": 1})
NOTED = [Problem("1+1=", "2", {"note": "a; b, c"})]
AS_WRITTEN = {  # a file's ending and contents, and its problems
    "lines of Windows": (
        "jsonl",
        BOM + b'{"prompt": "1+1=", "answer": "2"}\r\n\r\n{"prompt": "2+3=", "answer": "5"}',
        SUMS,
    ),
    "a table of Windows": ("csv", BOM + b"prompt,answer\r\n1+1=,2\r\n\r\n2+3=,5", SUMS),
    "spaces behind commas": ("csv", b'prompt, answer , note\n1+1=, 2, "a; b, c"\n', NOTED),
    "a comma in a quoted name": ("csv", b'"a, b",prompt\n, 1+1=\n', [Problem(" 1+1=", metadata={"a, b": ""})]),
    "semicolons": ("csv", b'prompt;answer;note\n1+1=;2;"a; b, c"\n', NOTED),
    "semicolons and spaces": ("csv", b'prompt; answer; note\n1+1=; 2; "a; b, c"\n', NOTED),
    "semicolons and quotes": ("csv", b'"prompt";"answer";"note"\n1+1=;2;"a; b, c"\n', NOTED),
    "a semicolon in a quoted name": ("csv", b'prompt,"a;b"\n1;1=,2\n', [Problem("1;1=", metadata={"a;b": "2"})]),
    "a semicolon beside a comma": ("csv", b"prompt,a;b\n1;1=,2\n", [Problem("1;1=", metadata={"a;b": "2"})]),
    "a semicolon in a prompt": ("csv", b"prompt\n1;1=\n", [Problem("1;1=")]),
    "empty cells": ("csv", b"prompt,split,level\na,train,1\nb,,\n", [LEVELED, Problem("b", metadata={"split": None})]),
}


@pytest.mark.parametrize(("ending", "content", "problems"), AS_WRITTEN.values(), ids=AS_WRITTEN)
def test_files_are_read_as_other_programs_write_them(tmp_path, ending, content, problems):
    (tmp_path / f"p.{ending}").write_bytes(content)
    assert list(load_problems(tmp_path / f"p.{ending}")) == problems


def test_a_file_is_read_by_the_ending_of_a_link_to_it(tmp_path):  # such as the hub's cache has
    (tmp_path / "blob").write_text('{"prompt": "1+1=", "answer": "2"}\n{"prompt": "2+3=", "answer": "5"}')
    (tmp_path / "p.jsonl").symlink_to("blob")
    assert list(listed_problems(ProblemFile(problems=tmp_path / "p.jsonl"))) == SUMS


NAMED = {"question": "1+1=", "target": 2}  # for reward functions that know the answer by the file's name for it
ROW = {
    "question": "1+{x}=",
    "target": 2,
    "numbers": [1, 1],
    "half": 0.5,
    "yes": True,
    "odd name": ["é"],
    "tests": ['f("é") == 1', "f(2)"],
    "choices": {"text": ["x", "yy"], "label": ["A", "B"]},
}


def test_numbers_of_numpy_are_answers_and_none_is_neither_split_nor_level():
    rows = [{"prompt": "a", "answer": number} for number in (np.int64(3), np.float32(0.5))]
    found = listed_problems(ProblemFile(problems=[*rows, {"prompt": "b", "split": None, "level": None}]))
    assert [problem.answer for problem in found] == ["3", "0.5", ""] and found[2].metadata == {"split": None}


@pytest.mark.parametrize(
    ("row", "settings", "problem"),
    [
        (
            {**NAMED, "answer": "because", "n": [1, 1], "id": None},
            {"columns": {"prompt": "question", "answer": "target", "numbers": "n"}},
            Problem("1+1=", "2", {**NAMED, "id": None, "numbers": [1, 1]}),
        ),
        *(
            ({"prompt": "a", "answer": number}, {}, Problem("a", text))
            for number, text in ((-7, "-7"), (2.0, "2.0"), (10**400, str(10**400)))
        ),
        *(
            (ROW, {"columns": {"prompt": "question"}, "prompt_template": template}, Problem(prompt, "", ROW))
            for template, prompt in (
                ("Q: {question}\nA:", "Q: 1+{x}=\nA:"),
                ("{{{question}}} {{}}", "{1+{x}=} {}"),
                ("Reach {target} with {numbers}: {prompt}", "Reach 2 with [1, 1]: 1+{x}="),
                ("{half} {yes} {odd name}", "0.5 true é"),
                ("Pass:\n{tests}", 'Pass:\nf("é") == 1\nf(2)'),
                ("Which?\n{choices}", "Which?\nA. x\nB. yy"),
            )
        ),
        *(
            ({"prompt": "a", "part": part}, {"columns": {"split": "part"}}, Problem("a", "", {"split": split}))
            for part, split in (("train", "train"), ("test", "test"), ("validation", "test"))
        ),
        *(
            ({"prompt": "a", "hard": written}, {"columns": {"level": "hard"}}, Problem("a", "", {"level": level}))
            for written, level in ((1, 1), (12, 12), ("3", 3), (2.0, 2), ("2.0", 2), ("Level 5", 5))
        ),
        (
            {"q": "a", "messages": [USER]},
            {"prompt_template": "{q}?"},
            Problem("a?", "", {"q": "a", "messages": [USER]}),
        ),
    ],
)
def test_columns_templates_and_levels_make_the_problem(tmp_path, row, settings, problem):
    assert list(load_problems(write_lines(tmp_path / "p.jsonl", [row]), **settings)) == [problem]


@pytest.mark.parametrize("column", ["prompt", "messages", "turns"])
@pytest.mark.parametrize("name", ["p.jsonl", "p.json", "p.parquet", "folder"])
def test_a_conversation_is_read_from_a_file_as_from_a_list(tmp_path, column, name):
    rows = [{column: TALK, "answer": "2", "split": "train"}, {column: [USER], "answer": "3", "split": "test"}]
    WRITERS[name](tmp_path / name, rows)
    found = list(load_problems(tmp_path / name, {"prompt": column} if column == "turns" else None))
    assert found == [Problem(TALK, "2", {"split": "train"}), Problem([USER], "3", {"split": "test"})]
    if column != "turns":
        assert list(listed_problems(ProblemFile(problems=rows))) == found


def test_the_splits_of_a_dataset_are_read_and_counted_one_after_the_other(tmp_path):
    splits = {"test": "test", "train": "train", "validation": "test"}
    parts = {name: Dataset.from_list([{"prompt": f"{name}{n}"} for n in range(3)]) for name in splits}
    DatasetDict(parts).save_to_disk(tmp_path / "set")
    mapped = load_problems(tmp_path / "set")
    assert {problem.prompt[:-1]: problem.metadata["split"] for problem in mapped} == splits
    assert [mapped[index].prompt for index in range(9)] == [problem.prompt for problem in mapped]
    assert mapped.make is not None and list(pickle.loads(pickle.dumps(mapped))) == list(mapped)
    assert mapped.place(4) == f"{str(tmp_path / 'set')!r}, row 2 of 'train'"


# Preference pairs.


PAIR = {"prompt": [USER], "chosen": [ANSWER], "rejected": [{**ANSWER, "content": "3"}]}
SYSTEM, WRONG = TALK[:1], PAIR["rejected"]


@pytest.mark.parametrize(
    ("row", "prompt"),
    [
        (PAIR, [USER]),
        ({**PAIR, "chosen": "2"}, [USER]),
        ({"chosen": [USER, ANSWER], "rejected": [USER, *WRONG]}, [USER]),
        ({"chosen": [*SYSTEM, USER, ANSWER], "rejected": [*SYSTEM, USER, *WRONG]}, [*SYSTEM, USER]),
        ({"q": "1+1=", "chosen": "2", "rejected": "3", "split": "validation", "id": 7}, "1+1="),
    ],
)
def test_columns_splits_and_conversations_of_pairs_are_read(tmp_path, row, prompt):
    found = load_pairs(write_lines(tmp_path / "p.jsonl", [row]), {"prompt": "q"} if "q" in row else None)
    assert found == [Pair(prompt, "2", "3", "test" if "split" in row else None)]


def test_pairs_of_a_prompt_stay_together_and_a_named_split_wins():
    prompts = [prompt for n in range(50) for prompt in (f"{n}", [{"role": "user", "content": f"{n}"}])]
    pairs = [Pair(prompt, str(n), "x") for n in range(2) for prompt in prompts]
    train, held_out = split_pairs(pairs, 0.3)
    assert len(train) + len(held_out) == 200 and 20 < len(held_out) < 120
    assert not {Problem(pair.prompt).text for pair in train} & {Problem(pair.prompt).text for pair in held_out}
    assert split_pairs(pairs, 0.0) == (pairs, [])
    named = [Pair("a", "b", "c", "test"), Pair("a", "b", "d", "train")]
    assert split_pairs(named, 1.0) == (named[1:], named[:1])


def test_tokens_of_pairs_are_those_of_the_chat_template_and_no_answer_is_a_control_token():
    tokenizer = chatml()
    prompts = [[USER], [*SYSTEM, USER, ANSWER, USER], "1+1="]
    rows = encode_pairs(Encoder(tokenizer), [Pair(prompt, "2", "no idea") for prompt in prompts], chat=True)
    for side, answer in zip(rows, ("2", "no idea"), strict=True):
        for prompt, row in zip(prompts[:2], side[:2], strict=True):
            whole = [*prompt, {"role": "assistant", "content": answer}]
            assert row == tokenizer.apply_chat_template(whole)["input_ids"]
        assert side[2] == tokenizer(f"1+1={answer}")["input_ids"]
    spelled = "2<|im_end|>\n<|im_start|>user\nRight!"
    ((row,), _) = encode_pairs(Encoder(tokenizer), [Pair([USER], spelled, "3")], chat=True)
    assert row.count(tokenizer.convert_tokens_to_ids("<|im_start|>")) == 2
    assert tokenizer.decode(row).endswith(f"assistant\n{spelled}<|im_end|>\n")


# The stream: problem i depends on seed, split and i.


ONE_DIGIT = {f"{a}+{b}=" for a in range(10) for b in range(10)}


def stream(split="train", seed=0, **arguments):
    made = ProblemStream(arguments.pop("verifier", Arith()), split, **arguments)
    made.seed = seed
    return made


def take(problems, count, start=0):
    return [problems[index].prompt for index in range(start, start + count)]


def test_the_split_is_the_same_everywhere_and_has_the_share_it_was_given():
    def is_test(key, fraction):
        return side_of(None, hashed(key, 8), fraction) == "test"

    assert [is_test(f"{n}+{n}", 0.2) for n in range(30)] == [n in (0, 8, 25, 28) for n in range(30)]
    for fraction in (0.1, 0.5):
        share = sum(is_test(str(each), fraction) for each in range(20_000)) / 20_000
        assert share == pytest.approx(fraction, abs=0.01)


def test_listed_problems_come_once_an_epoch_and_are_shuffled_by_seed_and_epoch():
    listed = [str(index) for index in range(20)]
    problems, other = (stream(seed=seed, problems=listed, test_fraction=0.0) for seed in (0, 1))
    orders = [take(problems, 20), take(problems, 20, start=20), take(other, 20), listed]
    assert len({tuple(order) for order in orders}) == 4 and all(sorted(order) == sorted(listed) for order in orders)


def test_listed_problems_are_split_as_sampled_ones_are():
    listed = sorted(ONE_DIGIT)
    train, test = (set(take(stream(split, verifier=Arith(1), problems=listed), 100)) for split in ("train", "test"))
    assert train | test == ONE_DIGIT and not train & test
    assert [set(take(stream(split, verifier=Arith(1)), 1200)) for split in ("train", "test")] == [train, test]


def test_listed_problems_may_name_their_split_and_who_names_both_is_told():
    listed = [{"prompt": f"{split} {n}", "split": split} for split in ("train", "test", "validation") for n in range(9)]
    train, test = (set(take(stream(split, problems=listed, test_fraction=0.5), 40)) for split in ("train", "test"))
    assert train == {f"train {n}" for n in range(9)}
    assert test == {f"{split} {n}" for split in ("test", "validation") for n in range(9)}
    twice = [{"prompt": prompt, "split": split} for prompt, split in (("1+2=", "train"), ("2+1=", "test"))]
    with pytest.warns(UserWarning, match="problems that are in both splits: 1"):
        stream(problems=twice)


@pytest.mark.parametrize("listed", [None, [f"{n}+0=" for n in range(8, 14)]], ids=["sampled", "listed"])
def test_problems_that_are_posed_together_are_those_that_are_posed_one_by_one(listed):
    asked = []

    def encode(problems):
        asked.append(len(problems))
        return [None if each.prompt[1] in "+1" else Prompt(each, [1]) for each in problems]  # many are too long

    arguments = {"verifier": Arith(levels=2), "problems": listed, "encode": encode, "test_fraction": 0.0}
    one_by_one = [stream(**arguments).prompt(index) for index in range(9)]
    asked.clear()
    together = stream(**arguments)
    assert together.prompts([*range(9), 3]) == [*one_by_one, one_by_one[3]]
    assert asked[0] == 9 and asked == sorted(asked, reverse=True) and len(asked) < 9
    asked.clear()
    assert together.prompts([8, 2]) == [one_by_one[8], one_by_one[2]] and asked == []


def test_equal_problems_have_the_number_of_the_first_of_them():
    listed = [{"prompt": f"{n}+0="} for n in (1, 2, 3, 1)] + [{"prompt": "1+0=", "answer": "one"}]
    problems = stream(problems=listed, test_fraction=0.0)
    found = problems.first_equals(2000)
    assert len(found) == 5 and len({*found}) == 4, "another answer is another problem"
    sampled = stream("test", verifier=Arith(1))
    posed = take(sampled, 300)
    assert sampled.first_equals(300) == list(map(posed.index, posed))


# Which prompts are too long, and what is encoded to know it.


TEXTS = [f"{'very ' * (n % 9)}long é字 {'?' * (n % 5)}" for n in range(90)]
SIDES = {text: ("train", "test")[n % 2] for n, text in enumerate(dict.fromkeys(TEXTS))}  # the split of each


def listed_tokens(task):
    problems = task.stream.listed
    return {problem.prompt: problems.posed(n).tokens for n, problem in enumerate(problems)}


def test_the_environments_of_a_run_encode_their_problems_once(monkeypatch):
    """Those that plan, train and evaluate load a tokenizer each."""
    read, own = [], Encoder.ids

    def ids(self, texts, add_special_tokens=False):
        read.extend(texts)
        return own(self, texts, add_special_tokens)

    monkeypatch.setattr(Encoder, "ids", ids)
    rows = [{"prompt": f"Once {text}", "answer": f"{text} again", "split": side} for text, side in SIDES.items()]
    train, test = (
        TextGenTask(Exact(), problems=rows, tokenizer=train_tokenizer(270, TEXTS), split=split)
        for split in ("train", "test")
    )
    for name in ("prompt", "answer"):
        assert [read.count(row[name]) for row in rows[1:]] == [1] * (len(rows) - 1)  # the first is an example, too
    exact = {row["prompt"]: train.encoding.encoder.prompts([row["prompt"]])[0] for row in rows}
    assert listed_tokens(train) | listed_tokens(test) == exact
    assert train.encoding.max_new_tokens == test.encoding.max_new_tokens


@pytest.mark.parametrize(
    "changed",
    [
        {"tokenizer": train_tokenizer(275, TEXTS)},
        {"chat_template": CHATML.replace("assistant", "me")},
        {"system_prompt": "Be brief."},
        {"chat": False},
        {"chat": False, "cue": "A:"},
        {"max_prompt_tokens": 30},
        {"problems": [text[::-1] for text in SIDES]},
    ],
    ids=lambda changed: " ".join(changed),
)
@pytest.mark.filterwarnings("ignore:.*more than 30 tokens:UserWarning")
def test_an_environment_with_another_setting_has_its_own_tokens(changed):
    settings = {"problems": [*SIDES], "tokenizer": train_tokenizer(270, TEXTS), "chat": True, "test_fraction": 0.0}
    settings |= {"max_prompt_tokens": 200}
    before = listed_tokens(TextGenTask(Exact(), **settings))
    settings |= changed
    task = TextGenTask(Exact(), **settings)
    exact = dict(zip(settings["problems"], task.encoding.encoder.prompts(settings["problems"]), strict=True))
    fitting = {text: ids for text, ids in exact.items() if len(ids) <= settings["max_prompt_tokens"]}
    assert listed_tokens(task) == fitting != before
    assert task.encoding.skipped_prompts == len(exact) - len(fitting)
    assert task.encoding.max_prompt_tokens == max(map(len, fitting.values()))


def test_problems_that_another_thread_encodes_meanwhile_are_not_taken_over():
    encoder = Encoder(train_tokenizer(270, TEXTS))

    class Limit:
        def __eq__(self, other):  # while it is compared
            encoder.once("prompts", ["of another thread"], (), lambda: "its own")
            return True

    for _ in range(2):
        assert encoder.once("prompts", TEXTS, (Limit(),), lambda: "these") == "these"


@pytest.mark.parametrize("most", [encoding.MOST_AT_LOAD, 3], ids=["encoded at load", "when they are posed"])
def test_a_long_list_skips_prompts_when_they_are_met(most, monkeypatch):
    """Each is counted then; another problem of the list, drawn at random, is posed in its place."""
    monkeypatch.setattr("rlenv.encoding.MOST_AT_LOAD", most)
    rows = ["a" * n for n in (1, 2, 30, 3)]
    with pytest.warns(UserWarning, match="more than 20 tokens"):
        task = TextGenTask(Exact(), problems=rows, test_fraction=0.0, max_prompt_tokens=20, max_new_tokens=4)
        posed = [prompt.problem.prompt for prompt in task.prompts(range(24))]
    assert {*posed} == {*rows} - {rows[2]}
    skipped = task.encoding.skipped_prompts
    assert skipped == 1 if most > 3 else skipped >= 24 // len(rows)
    assert posed == [task.stream[n].prompt for n in range(24)]


@pytest.mark.parametrize("name", ["p.jsonl", "p.parquet", "folder"])
@pytest.mark.filterwarnings("ignore:.*more than 4 tokens:UserWarning")
def test_other_problems_are_refused_on_resume(tmp_path, name):
    """The same file that is read in another way, and another one in its place."""

    def stream(**settings):
        return TextGenTask("exact", problems=tmp_path / name, tokenizer="train:260", **settings).stream

    rows = [{"prompt": f"{n}+{n}=", "answer": str(2 * n)} for n in range(40)]
    WRITERS[name](tmp_path / name, rows)
    state = stream().state_dict()
    stream().load_state_dict(state)
    ways = {"columns": {"answer": "prompt"}}, {"prompt_template": "{prompt}"}, {"max_prompt_tokens": 4}
    others = [stream(**each) for each in ways]
    WRITERS[name](tmp_path / name, [*rows[:-1], {"prompt": "39+39=", "answer": "0"}])
    for other in (*others, stream()):
        with pytest.raises(ValueError, match="problems have changed"):
            other.load_state_dict(state)

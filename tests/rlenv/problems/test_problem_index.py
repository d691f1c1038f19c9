"""Problems of a large file are those of a small one, and its index is kept, damaged, or out of date."""

import csv
import io
import json
import os
import pickle
import random
import subprocess
import sys
import warnings

import continued
import numpy as np
import pytest
from counted import counted
from drawn import drawn
from hypothesis import HealthCheck, example, given
from hypothesis import strategies as st
from inprocess import result_of, run
from runs import differences, everything, finished_run
from tiny_models import write_chat_model
from transformers import AutoTokenizer

from agents import RLOO
from rlenv.envs.task import TextGenTask
from rlenv.problems import files, rows
from rlenv.problems.files import load_problems, open_problems
from rlenv.problems.listed import cache, index, lazy
from rlenv.problems.listed.lazy import LazyProblems, open_lazily
from rlenv.problems.listed.listed import ProblemList
from rlenv.problems.listed.survey import Groups, answered_twice, held_out
from rlenv.text.encoder import Encoder
from rlenv.text.tokenizer import character_tokenizer
from verifiers import Exact, FunctionVerifier, Problem, Verifier, make_verifier

IN_ONE_FOLDER = {"suppress_health_check": [HealthCheck.function_scoped_fixture]}


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """A folder of its own for indexes, and a limit that makes every file a large one."""
    monkeypatch.setattr(cache, "HF_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(lazy, "LARGE", 0)
    return tmp_path / "home" / "rlenv" / "problems"


def in_memory(make):
    """Return what is made while no file counts as large."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lazy, "LARGE", 1 << 40)
        return make()


def outcome(make):
    """Return what is made, or what is wrong."""
    try:
        return make()
    except ValueError as error:
        return f"{type(error).__name__}: {error}"


def write(path, count=60, **more):
    """Write sums, with levels, and some that name their split."""
    made = []
    for n in range(count):
        split = {"split": ("train", "test", "validation")[n % 3]} if n % 4 == 0 else {}
        made.append({"prompt": f"{n}+{n % 7}=", "answer": str(n + n % 7), "level": 1 + n % 3, **split, **more})
    path.write_text("".join(json.dumps(row) + "\n" for row in made), encoding="utf-8")
    return path


def old(path):
    """Give a file a time long ago, so that its time tells whether it changed; return the file."""
    os.utime(path, ns=(10**18, 10**18))
    return path


@pytest.fixture
def settled(monkeypatch):
    """Let no file be so recent that it is read again to see whether it changed."""
    monkeypatch.setattr(index, "CLOCK", -(10**18))


# The same problems, and the same errors.

CELLS = st.text(st.sampled_from('ab,;"\n\r\t é字🙂\u2028\x85\x1c\ufeff{}1'), max_size=6)
ENDS = ("\n", "\r\n", "\r")


@given(st.lists(st.tuples(CELLS, CELLS), min_size=1, max_size=6), st.sampled_from(ENDS), st.booleans(), st.data())
@drawn(150, **IN_ONE_FOLDER)
def test_tables_are_read_as_in_memory(tmp_path, cells, end, marked, data):
    made = io.StringIO(newline="")
    writer = csv.writer(
        made, lineterminator=end, quoting=data.draw(st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]))
    )
    for each in [("prompt", "answer"), *cells]:
        writer.writerow(each)
        made.write(end * data.draw(st.integers(0, 2)))
    suffix = data.draw(st.sampled_from([".csv", ".tsv"]))
    path = tmp_path / f"p{suffix}"
    text = made.getvalue() if suffix == ".csv" else made.getvalue().replace(",", "\t")
    path.write_bytes(text.encode("utf-8-sig" if marked else "utf-8"))
    same(path)


@given(st.text(st.sampled_from('prompt,"\n\ré🙂 '), max_size=40), st.binary(max_size=2))
@example('a"b\n', b"")
@drawn(300, **IN_ONE_FOLDER)
def test_what_is_no_table_is_refused_as_in_memory(tmp_path, text, rest):
    path = tmp_path / "p.csv"
    path.write_bytes(b"prompt,answer\n" + text.encode() + rest)
    same(path)


VALUES = st.one_of(CELLS, st.integers(-3, 3), st.none(), st.booleans(), st.floats(), st.lists(CELLS, max_size=2))
OBJECTS = st.dictionaries(st.sampled_from(["prompt", "answer", "split", "level", "x"]), VALUES, max_size=4)
WELL = st.fixed_dictionaries({"prompt": CELLS.filter(bool), "answer": st.one_of(CELLS, st.integers())})
LINES = st.one_of(
    WELL.map(json.dumps),
    WELL.map(lambda row: json.dumps(row, ensure_ascii=False)),
    OBJECTS.map(json.dumps),
    st.sampled_from(["", " ", "\u2003", "\r", "[]", "{", '{"prompt": "a"', "\ufeff{}", '{"prompt": "\\ud800"}', "nul"]),
    st.builds(json.dumps, st.fixed_dictionaries({"messages": st.just([{"role": "user", "content": "1+1="}])})),
)


@given(st.lists(LINES, max_size=8), st.sampled_from(("\n", "\r\n")), st.booleans(), st.binary(max_size=1))
@drawn(300, **IN_ONE_FOLDER)
def test_lines_are_read_as_in_memory(tmp_path, lines, end, marked, rest):
    path = tmp_path / "p.jsonl"
    path.write_bytes(end.join(lines).encode("utf-8-sig" if marked else "utf-8") + rest)
    same(path)


def same(path, columns=None, template=None):
    if not path.stat().st_size:
        return
    expected = outcome(lambda: load_problems(path, columns, template))
    for _ in range(2):  # made, and kept
        found = outcome(lambda: open_lazily(path, columns, template))
        assert (found if isinstance(found, str) else list(found)) == expected
    if isinstance(expected, list):
        places = [f"{str(path)!r}, {place}" for place, _ in rows.read_rows(path)]
        assert [found.place(row) for row in range(len(found))] == places
        assert [found[row] for row in range(len(found))] == expected
        assert found[-1] == expected[-1] and found[1:3] == expected[1:3]


@pytest.mark.parametrize(
    "columns, template",
    [
        ({"prompt": "question", "answer": "target"}, None),
        ({"answer": "target", "level": "hard"}, "Q: {question}\nA: "),
        ({"prompt": "questio"}, None),
        (None, "{x}"),
        (None, "no field"),
        ({"prompt": 1}, None),
        (None, None),
    ],
)
def test_columns_and_templates(tmp_path, columns, template):
    made = [{"question": f"q{n}", "target": n, "hard": f"Level {n + 1}", "messages": "m"} for n in range(5)]
    path = tmp_path / "p.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in made))
    same(path, columns, template)


def test_a_column_that_only_later_rows_have(tmp_path):
    path = tmp_path / "p.jsonl"
    path.write_text('{"answer": "1"}\n{"prompt": "a"}\n')
    same(path)
    path.write_text('{"messages": "a"}\n{"prompt": "b"}\n')
    same(path)
    path.write_text('{"prompt": "b"}\n{"prompt": "b", "answer": "1"}\n')
    same(path)


def test_many_malformed_rows(tmp_path):
    path = tmp_path / "p.jsonl"
    path.write_text('{"prompt": "a"}\n' + "\n{}\n" * 5)
    same(path)
    assert "and 2 more" in outcome(lambda: open_lazily(path))


def test_lines_of_a_table_are_counted_across_chunks(tmp_path, monkeypatch):
    path = tmp_path / "p.csv"
    path.write_bytes(b"prompt,answer\r\n" + b'"a\r\nb",c\r\n\r\n\rd,e\r' * 5)
    for chunk in range(1, 12):
        monkeypatch.setattr("rlenv.problems.listed.lines.CHUNK", chunk)
        same(path)


# The same tasks.


def boxed(prompts, completions, answer, level, **columns):
    return [0.0] * len(prompts)


class Halves(Verifier):
    """A verifier of someone's own: what it says of problems cannot be kept."""

    def split_key(self, problem):
        return problem.prompt[:2]

    def demonstration(self, problem):
        return f"<{problem.answer}>"

    def verify(self, problem, completion):
        raise NotImplementedError


SETTINGS = {
    "plain": {"verifier": "exact"},
    "test": {"verifier": "exact", "split": "test", "test_fraction": 0.5},
    "all for training": {"verifier": "exact", "test_fraction": 0.0},
    "curriculum": {"verifier": "exact", "curriculum": 0.5},
    "thompson": {"verifier": "exact", "prompt_choice": "thompson"},
    "keys": {"verifier": Halves(), "prompt_choice": "thompson"},
    "weighted": {"verifier": ["numeric", "format"]},
    "boxed": {"verifier": "numeric", "extract": "boxed"},
    "function": {"verifier": FunctionVerifier(boxed), "max_prompt_tokens": 6},
    "skips": {"verifier": "exact", "long_prompts": "skip", "max_prompt_tokens": 4},
    "trained": {"verifier": "exact", "tokenizer": "train:260"},
    "chat": {"verifier": "exact", "tokenizer": "train:260", "system_prompt": "Be brief."},
    "too long": {"verifier": "exact", "max_prompt_tokens": 4},
    "longer answers": {"verifier": "exact", "max_new_tokens": 1},
    "a missing column": {"verifier": FunctionVerifier(lambda prompts, completions, z: [0.0]), "max_prompt_tokens": 9},
    "an empty split": {"verifier": "exact", "split": "test", "problems": [{"prompt": "a", "split": "train"}] * 3},
    "one level": {"verifier": "exact", "curriculum": 0.5, "problems": [{"prompt": "a"}, {"prompt": "b"}]},
    "several answers": {
        "verifier": "exact",
        "test_fraction": 0.0,
        "problems": [{"prompt": "abcba"[n % 5], "answer": "xyz"[n % 3] if n % 4 else ""} for n in range(30)],
    },
    "several columns": {
        "verifier": FunctionVerifier(boxed),
        "problems": [{"prompt": "a", "level": 1}, {"prompt": "b", "x": 1}],
        "test_fraction": 0.0,
    },
    "an unknown character": {
        "verifier": "exact",
        "tokenizer": character_tokenizer("0123456789+="),
        "problems": [{"prompt": f"{n}=", "answer": "1"} for n in range(9)] + [{"prompt": "é", "answer": "1"}],
    },
    "special tokens": {
        "verifier": "exact",
        "tokenizer": "train:260",
        "problems": [{"prompt": f"{n}", "answer": "a <eos>"} for n in range(9)] + [{"prompt": "<eos>", "answer": ""}],
    },
    "conversations": {
        "verifier": "exact",
        "tokenizer": "train:260",
        "problems": [{"prompt": [{"role": "user", "content": f"{n}+1="}], "answer": "2"} for n in range(9)],
    },
    "a prompt that sizes too much": {"verifier": "exact", "problems": [{"prompt": "a"}, {"prompt": "b" * 5000}]},
    "an answer that sizes too much": {"verifier": "exact", "problems": [{"prompt": "a", "answer": "b" * 5000}] * 2},
}


def facts(settings, problems):
    """Return all that a task says of its problems, and its warnings."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        task = TextGenTask(**{**settings, "problems": problems})
        posed = []
        for seed in (0, 5):
            task.stream.seed = seed
            for n in range(70):
                posed.append(task.stream[n])
                task.stream.record(posed[-1], n % 3 > 0)
                if n % 8 == 7:
                    task.stream.settle()
        prompts = task.prompts(range(20))
        state = task.stream.state_dict()
    limits = task.max_prompt_tokens, task.max_new_tokens, task.skipped_prompts, task.stream.sizes
    shown = [outcome(lambda problem=problem: task.demonstration(problem)) for problem in posed[:9]]
    said = [str(each.message) for each in said]
    return posed, prompts, state, limits, shown, task.tokenizer.get_vocab(), said, list(task.stream.listed)


@pytest.mark.parametrize("name", SETTINGS)
def test_tasks_are_those_of_problems_in_memory(name, tmp_path):
    settings, path = SETTINGS[name], tmp_path / "p.jsonl"
    if "problems" in settings:
        path.write_text("".join(json.dumps(row) + "\n" for row in settings["problems"]))
    else:
        write(path)
    expected = in_memory(lambda: outcome(lambda: facts(settings, str(path))))
    for _ in range(2):
        assert outcome(lambda: facts(settings, str(path))) == expected
    assert isinstance(expected, str) == (name.startswith(("too", "a ", "an ", "one")))


def test_opened_problems_are_in_memory(tmp_path):
    class Opening(Exact):
        def opened(self, problem):
            return Problem(f"{problem.prompt}?", problem.answer, problem.metadata)

    write(tmp_path / "p.jsonl")
    settings = {"verifier": Opening()}
    expected = in_memory(lambda: facts(settings, tmp_path / "p.jsonl"))
    assert facts(settings, tmp_path / "p.jsonl") == expected
    assert all(problem.prompt.endswith("?") for problem in expected[0])


# What is kept.


@pytest.fixture
def passes(monkeypatch):
    """Count scans of a whole file, and reads of its rows, from now on."""
    return counted(monkeypatch, ("scan", index.Scan, "__init__"), ("open", index.Index, "opened"))


def test_a_file_is_read_once(tmp_path, passes, settled):
    path = old(write(tmp_path / "p.jsonl", 5000))
    first = facts({"verifier": "exact"}, path)
    assert passes["scan"] == 1
    passes.clear()
    task = TextGenTask("exact", problems=str(path))
    assert task.stream.digest == first[2]["digest"]
    assert passes == {"open": 2}, "the first problem, for its form, and that of the split"
    passes.clear()
    TextGenTask("exact", problems=str(path), split="test")
    assert passes == {"open": 2}
    passes.clear()
    TextGenTask("numeric", {"extract": "boxed"}, problems=str(path))
    assert passes["scan"] == 0 and passes["open"] > 1, "other demonstrations"
    passes.clear()
    TextGenTask("exact", problems=str(path), template="{prompt}{answer}")
    assert passes["scan"] == 1, "other problems"


def test_the_index_is_small(tmp_path, home):
    count = 20_000
    TextGenTask("exact", problems=str(write(tmp_path / "p.jsonl", count))).stream.state_dict()
    sizes = [file.stat().st_size for file in home.rglob("*") if file.is_file()]
    constant = 600 * len(sizes)
    assert 28 * count < sum(sizes) <= 32 * count + constant
    (folder,) = home.iterdir()
    assert folder.name.startswith("p-") and not list(folder.glob(".*"))


def test_little_is_in_memory(tmp_path):
    task = TextGenTask("exact", problems=str(write(tmp_path / "p.jsonl", 20_000)))
    held = len(pickle.dumps(task.stream.listed))
    assert held < 34 * 20_000
    assert len(task.encoder._prompts) < 10


def test_what_a_verifier_was_changed_to_say_is_not_kept(tmp_path):
    path, verifier = write(tmp_path / "p.jsonl"), make_verifier(["numeric", "format"])
    assert TextGenTask(verifier, problems=str(path)).max_new_tokens < 150
    verifier.demonstration = lambda problem: "1" * 200
    assert TextGenTask(verifier, problems=str(path)).max_new_tokens == 201


def test_broken_links_beside_the_code_are_passed_over(tmp_path, monkeypatch):
    (tmp_path / ".#base.py").symlink_to("nobody@nowhere")
    (tmp_path / "base.py").write_text("")
    monkeypatch.setattr(cache.verifiers, "__file__", str(tmp_path / "__init__.py"))
    assert cache.code_hash.__wrapped__() != cache.code_hash()


def test_other_code_reads_again(tmp_path, passes, monkeypatch, settled):
    path = old(write(tmp_path / "p.jsonl"))
    open_lazily(path)
    monkeypatch.setattr(index, "code_hash", lambda: "other")
    open_lazily(path)
    open_lazily(path)
    assert passes["scan"] == 2


def test_a_file_with_another_time_is_compared(tmp_path, passes, settled):
    path = old(write(tmp_path / "p.jsonl"))
    kept = list(open_lazily(path))
    os.utime(path)
    assert list(open_lazily(path)) == kept
    copy = tmp_path / "copy"
    copy.write_bytes(path.read_bytes())
    copy.replace(path)
    assert list(open_lazily(path)) == kept
    assert passes["scan"] == 1


def test_a_file_that_changes_within_one_tick_of_the_clock(tmp_path):
    path = old(write(tmp_path / "p.jsonl"))
    before = path.stat()
    assert open_lazily(path)[0].prompt == "0+0="
    path.write_text(path.read_text().replace("0+0=", "0+1=", 1))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    assert open_lazily(path)[0].prompt == "0+1="


def test_what_was_kept_of_an_earlier_state_is_removed(tmp_path, home):
    path = write(tmp_path / "p.jsonl")
    TextGenTask("exact", problems=str(path))
    before = set(home.rglob("*.found"))
    write(path, 50)
    TextGenTask("exact", problems=str(path))
    after = set(home.rglob("*.found"))
    assert len(before) == len(after) == 3 and not before & after


def test_few_files_are_kept(tmp_path, home):
    listed = open_lazily(write(tmp_path / "p.jsonl"))
    for n in range(2 * cache.MOST_FILES):
        listed.kept(f"{n}", [], lambda: np.zeros(1, np.uint32))
    assert len(list(home.rglob("*.found"))) <= cache.MOST_FILES
    assert len(list(home.rglob(cache.ROWS))) == 1


# Damage.


def damaged(data):
    """Yield what may become of a file."""
    rng = random.Random(0)
    yield b""
    yield b"\x80\x05K\x01."  # a pickle
    for _ in range(6):
        yield data[: rng.randrange(len(data))]
    for _ in range(6):
        place = rng.randrange(len(data))
        yield data[:place] + bytes([data[place] ^ (1 << rng.randrange(8))]) + data[place + 1 :]
    yield data + b"\0"


def test_a_damaged_cache_is_made_anew(tmp_path, home, settled):
    path = old(write(tmp_path / "p.jsonl"))
    expected = facts({"verifier": "exact"}, path)
    kept = {file: file.read_bytes() for file in home.rglob("*") if file.is_file()}
    assert len(kept) >= 4
    for file, data in kept.items():
        for each in damaged(data):
            file.write_bytes(each)
            assert facts({"verifier": "exact"}, path) == expected
        assert cache.load(file) is not None, "it is whole again"


def test_a_cache_that_cannot_be_written(tmp_path, monkeypatch, passes):
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(cache, "HF_HOME", str(tmp_path / "file"))
    path = write(tmp_path / "p.jsonl")
    expected = in_memory(lambda: facts({"verifier": "exact"}, path))
    for _ in range(2):
        assert facts({"verifier": "exact"}, path) == expected
    assert passes["scan"] == 2


def test_a_full_disk_leaves_nothing_behind(tmp_path, monkeypatch, home):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(cache.os, "replace", full)
    path = write(tmp_path / "p.jsonl")
    assert list(open_lazily(path)) == load_problems(path)
    assert [file for file in home.rglob("*") if file.is_file()] == []


# A file that changes while it is open.


def appended(path):
    with path.open("a") as file:
        file.write('{"prompt": "new", "answer": "1"}\n')


def rewritten(path):
    """Change the file in place, and keep its size and time."""
    before = path.stat()
    path.write_text(path.read_text().replace("+", "-"))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def answered(path):
    before = path.stat()
    path.write_text(path.read_text().replace('"answer": "', '"answer": "0')[: before.st_size])
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def replaced(path):
    write(path.with_name("q.jsonl"), 61).replace(path)


CHANGES = (appended, rewritten, answered, replaced, os.unlink, lambda path: os.utime(path, ns=(1, 1)))


@pytest.mark.parametrize("change", CHANGES)
def test_a_file_that_changes_is_an_error_of_one_line(change, tmp_path):
    path = write(tmp_path / "p.jsonl")
    task = TextGenTask("exact", problems=str(path))
    change(path)
    with pytest.raises(ValueError) as error:
        task.prompts(range(9))
    (line,) = str(error.value).splitlines()
    assert line.startswith(repr(str(path)))
    assert "has changed since it was opened" in line or "cannot be read: No such file" in line


def test_a_table_that_is_none_any_more_is_an_error_of_one_line(tmp_path):
    path = tmp_path / "p.csv"
    path.write_text("prompt,answer\n" + "abcd,1\n" * 9)
    listed, before = open_lazily(path), path.stat()
    path.write_text(path.read_text().replace("abcd", '"a"b'))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(ValueError, match="has changed since it was opened"):
        listed[3]


@pytest.mark.parametrize("step", ["digest_of", "first_names", "Scan"])
@pytest.mark.parametrize("change", [os.unlink, lambda path: path.write_bytes(b"\xff" * 9)])
def test_a_file_that_goes_while_it_is_indexed_is_an_error_of_one_line(step, change, tmp_path, monkeypatch):
    path, usual = write(tmp_path / "p.jsonl"), getattr(index, step)
    monkeypatch.setattr(index, step, lambda *args: (usual(*args), change(path))[0])
    with pytest.raises(ValueError) as error:
        open_lazily(path)
    assert str(error.value).startswith(repr(str(path))) and "\n" not in str(error.value)


def test_a_file_that_changes_while_it_is_indexed(tmp_path, monkeypatch, home):
    path = write(tmp_path / "p.jsonl")
    scan = index.Scan.__init__
    monkeypatch.setattr(index.Scan, "__init__", lambda *args: (scan(*args), appended(path))[0])
    with pytest.raises(ValueError, match="has changed since it was opened"):
        open_lazily(path)
    assert not list(home.rglob(cache.ROWS))


def test_a_folder_may_be_left(tmp_path, monkeypatch):
    write(tmp_path / "p.jsonl")
    monkeypatch.chdir(tmp_path)
    listed = open_problems("p.jsonl")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    assert listed[3].prompt == "3+3=" and listed.place(3) == "'p.jsonl', line 4"


# Other processes, and runs.


def test_another_process_reads_the_same_problems(tmp_path):
    path = write(tmp_path / "p.jsonl")
    task = TextGenTask("exact", problems=str(path))
    task.stream.digest  # noqa: B018 (it is kept)
    expected = [task.stream[n] for n in range(60)]
    copied = pickle.loads(pickle.dumps(task.stream))
    assert [copied[n] for n in range(60)] == expected
    code = "import pickle, sys; print(pickle.load(sys.stdin.buffer)[3].prompt)"
    done = subprocess.run([sys.executable, "-c", code], input=pickle.dumps(task.stream.listed), stdout=-1, check=True)
    assert done.stdout.decode().strip() == task.stream.listed[3].prompt


def test_only_large_files_of_lines_have_an_index(tmp_path, monkeypatch):
    path = write(tmp_path / "p.jsonl")
    monkeypatch.setattr(lazy, "LARGE", path.stat().st_size)
    assert not isinstance(open_problems(path), LazyProblems)
    monkeypatch.setattr(lazy, "LARGE", path.stat().st_size - 1)
    assert isinstance(open_problems(path), LazyProblems)
    (tmp_path / "p.json").write_text('[{"prompt": "a"}]')
    monkeypatch.setattr(lazy, "LARGE", 0)
    assert open_problems(tmp_path / "p.json") == [Problem("a")]
    assert "'.txt'" in outcome(lambda: open_problems(write(tmp_path / "p.txt")))


def test_a_small_file_is_read_once(tmp_path, monkeypatch):
    count = counted(monkeypatch, ("file", files, "read_rows"))
    in_memory(lambda: TextGenTask("exact", problems=str(write(tmp_path / "p.jsonl"))))
    assert count == {"file": 1}


def test_a_real_tokenizer(tmp_path):
    write_chat_model(tmp_path / "model")
    settings = {"verifier": "exact", "tokenizer": str(tmp_path / "model"), "chat": True}
    path = write(tmp_path / "p.jsonl")
    assert facts(settings, path) == in_memory(lambda: facts(settings, path))


READS_OTHERWISE = {
    "template": lambda tokenizer: setattr(tokenizer, "chat_template", "{{ messages[0].content }}"),
    "a token": lambda tokenizer: tokenizer.add_tokens(["12"]),
    "a role of a special token": lambda tokenizer: setattr(tokenizer, "pad_token", "<|im_end|>"),  # for templates
    "what is unknown": lambda tokenizer: setattr(tokenizer, "unk_token", "<|im_end|>"),
}


@pytest.mark.parametrize("change", READS_OTHERWISE)
def test_lengths_are_kept_for_one_tokenizer(change, tmp_path):
    write_chat_model(tmp_path / "model")
    usual, same, other = (AutoTokenizer.from_pretrained(tmp_path / "model") for _ in range(3))
    READS_OTHERWISE[change](other)
    assert Encoder(usual).identity == Encoder(same).identity != Encoder(other).identity


@given(st.lists(st.text(max_size=8), min_size=1, max_size=5), st.sampled_from(["", "<eos>", "<pad>", "é"]))
@drawn(100)
def test_characters_are_counted_as_tokens_are(texts, more):
    problems = [{"prompt": f"{text}{more}."} for text in texts]
    encoder = outcome(lambda: TextGenTask("exact", problems=problems, test_fraction=0.0).encoder)
    if not isinstance(encoder, str):
        prompts = [problem["prompt"] for problem in problems]
        assert encoder.counted(prompts) == list(map(len, encoder.prompts(prompts)))
        assert encoder.counted_ids(prompts) == list(map(len, encoder.ids(prompts)))


ANSWERED = st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from(["", "x", "y", "z"])), min_size=1, max_size=12)


@given(ANSWERED)
@drawn(200)
def test_prompts_with_several_answers_and_those_that_are_one_arm(rows):
    listed = ProblemList(Problem(prompt, answer) for prompt, answer in rows)
    answers, numbers = {}, {}
    for prompt, answer in rows:
        numbers.setdefault(prompt, len(numbers))
        if answer:
            answers.setdefault(prompt, {})[answer] = None
    several = [(prompt, *list(each)[:2]) for prompt, each in answers.items() if len(each) > 1]
    count, shown = answered_twice(listed)
    assert count == len(several)
    if count:
        first, second = (listed[row] for row in shown)
        assert (first.prompt, first.answer, second.answer) == several[0] and second.prompt == first.prompt
    groups = Groups.by_key(listed.texts())
    assert groups.numbers == list(range(len(numbers)))
    for prompt, number in numbers.items():
        assert groups.rows(number).tolist() == [row for row, (each, _) in enumerate(rows) if each == prompt]


@pytest.mark.parametrize("fraction", [0.0, 1e-300, 0.1, 0.5, 1 / 3, 1 - 2**-53, 1.0])
def test_splits_are_those_of_whole_numbers(fraction):
    end = int(fraction * 2**64)
    keys = sorted({max(0, min(2**64 - 1, end + n)) for n in (-2, -1, 0, 1, 2)} | {0, 2**63, 2**64 - 1})
    found = held_out(np.zeros(len(keys), np.uint8), np.array(keys, np.uint64), fraction)
    assert found.tolist() == [key < fraction * 2**64 for key in keys]
    named = held_out(np.array([1, 2], np.uint8), np.array([0, 2**64 - 1], np.uint64), fraction)
    assert named.tolist() == [False, True]


def trained(path, updates, agent=None):
    settings = {"episodes_per_update": 4, "device": "cpu", "group_size": 2, "seed": 1}
    kwargs = {"verifier": "exact", "problems": str(path), "max_new_tokens": 4, "prompt_choice": "thompson"}
    agent = RLOO("tiny", "rlenv:TextGen-v0", env_kwargs=kwargs, **settings) if agent is None else agent
    continued.run(agent, updates)
    return agent


def test_training_is_that_of_problems_in_memory_and_is_resumed(tmp_path):
    path = write(tmp_path / "p.jsonl")
    expected = continued.everything(in_memory(lambda: trained(path, 4)))
    assert continued.everything(trained(path, 4)) == expected
    trained(path, 2).save(tmp_path / "half")
    assert continued.everything(trained(path, 2, RLOO.load(tmp_path / "half", device="cpu"))) == expected
    appended(path)
    with pytest.raises(ValueError, match="the problems have changed since the checkpoint was written"):
        RLOO.load(tmp_path / "half", device="cpu")


def test_a_run_on_a_large_file_is_resumed_on_the_command_line(tmp_path, monkeypatch, home, passes):
    monkeypatch.setattr(lazy, "LARGE", 1 << 20)
    path = write(tmp_path / "p.jsonl", 6000, note="x" * 150)
    assert path.stat().st_size > 1 << 20
    given = ["train", "--problems", path, "--verifier", "exact", "--max-new-tokens", 6, "--agent", "rloo", "--seed", 3]
    given += ["--group-size", 2, "--episodes-per-update", 4, "--sft-steps", 2, "--sft-examples", 8, "--eval-every", 2]
    given += ["--eval-episodes", 4, "--lr-schedule", "constant", "--save-every-updates", 1, "--device", "cpu"]
    finished_run(tmp_path / "whole", *given, "--episodes", 16)
    assert passes["scan"] == 1 and list(home.glob("p-*"))
    in_memory(lambda: finished_run(tmp_path / "listed", *given, "--episodes", 16))
    finished_run(tmp_path / "half", *given, "--episodes", 8)
    result_of(run("train", "--resume", tmp_path / "half", "--episodes", 16, "--json"))
    expected = everything(tmp_path / "listed")
    assert differences(expected, everything(tmp_path / "whole")) == []
    assert differences(expected, everything(tmp_path / "half")) == []


def test_commands_read_a_large_file(tmp_path, passes):
    path = write(tmp_path / "p.jsonl", 3000)
    shown = result_of(run("verifiers", "show", "exact", "--problems", path, "-n", 2, "--json"))
    assert {row["prompt"] for row in shown} == {"0+0=", "1+1="}
    assert passes == {"scan": 1, "open": 1}

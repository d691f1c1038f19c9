"""`rlenv report`: the page stands alone, and what the runs hold is data in it, never markup."""

import errno
import html
import json
import os
import re
import shutil
import signal
from html.parser import HTMLParser

import pytest
import torch
from _rlenv_scripts import callbacks
from _rlenv_scripts.reports import page as page_module
from _rlenv_scripts.reports.collect import kinds_of, read_runs
from _rlenv_scripts.run import Run
from inprocess import result_of, run

from agents.files import Lock

VOID = {"meta", "link", "input", "br", "img"}
EVIL = "<script>alert(1)</script><img src=x onerror=alert(1)>{{ 7 * 7 }}&amp;\x00\x1b[31m\u202e"
TEXT = ["--sft-steps", 2, "--sft-examples", 8, "--episodes", 16, "--episodes-per-update", 8, "--group-size", 4]
TEXT += ["--agent", "grpo", "--model", "tiny", "--eval-episodes", 4, "--verifier-arg", "digits=1"]
POLE = ["--env", "CartPole-v1", "--env-arg", "max_episode_steps=40", "--episodes", 8, "--episodes-per-update", 4]
POLE += ["--num-envs", 4, "--eval-episodes", 2]
COMMON = ["--log-interval", 1, "--device", "cpu", "--report", "--json"]


class Page(HTMLParser):
    """What a browser makes of a page: its elements, its text, and whether every element is closed."""

    def __init__(self, source):
        super().__init__()
        self.tags, self.attributes, self.open, self.texts, self.styles = [], [], [], [], []
        self.feed(source)
        self.close()
        self.text = "".join(self.texts)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert tag in VOID or self.open.pop() == tag

    def handle_data(self, data):
        (self.styles if self.open and self.open[-1] == "style" else self.texts).append(data)


def page_of(path):
    """Return the page in a file, which stands alone and has both themes."""
    source = path.read_text(encoding="utf-8")
    page = Page(source)
    assert page.open == []
    assert not {"script", "img", "iframe", "object", "embed", "base", "form", "foreignobject"} & {*page.tags}
    for name, value in page.attributes:
        assert not name.startswith("on")
        if name in ("href", "src", "action", "poster", "srcset", "data"):
            assert value.startswith("#") or value == "data:,"
        assert not re.search(r"url\((?!#)", value or "")
    (style,) = page.styles[:1]
    for rule in ("@media (prefers-color-scheme: dark)", "@media print"):
        assert rule in style
    for style in page.styles:
        assert not re.search(r"@import|url\(|https?:", style)
    ids = [value for name, value in page.attributes if name == "id"]
    assert len(ids) == len({*ids})
    used = [value[1:] for name, value in page.attributes if name == "href" and value.startswith("#")]
    assert {*used} <= {*ids}
    assert not re.search(r"#000[ab]\d\d", source)  # colors that stand for variables of the page
    return page


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Return a run of text and one of control, as rlenv train leaves them with their reports."""
    folder = tmp_path_factory.mktemp("runs")
    for name, options in (("text", TEXT), ("pole", POLE)):
        result_of(run("train", *options, *COMMON, "--log-dir", folder / name))
    return folder


def test_train_ends_with_a_page_of_curves_completions_credit_and_options(runs):
    page = page_of(runs / "text" / "report.html")
    assert page.tags.count("svg") >= 4
    for heading in ("What the doctor finds", "Curves", "Before and after", "Credit in training", "Configuration"):
        assert heading in page.text
    rows = list(map(json.loads, (runs / "text" / "samples.jsonl").read_text().splitlines()))
    assert rows[0]["prompt"] in page.text
    assert "grpo, tiny, on TextGen-v0" in page.text
    assert re.search(r"greedy, on held-out problems, \d+ episodes", page.text)
    source = (runs / "text" / "report.html").read_text(encoding="utf-8")
    said = {row["completion"] for row in rows}
    assert any(f'<p class="said">{html.escape(each)}</p>' in source for each in said if each)
    for option in ("learning_rate", "clip_range", "digits"):
        assert option in page.text


def test_the_module_that_a_run_names_is_not_imported(runs, undrawn, tmp_path, monkeypatch):
    shutil.copytree(runs / "pole", tmp_path / "run")
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    (tmp_path / "run" / "config.json").write_text(json.dumps(config | {"env_id": "foreign_module:Pole-v0"}))
    (tmp_path / "foreign_module.py").write_text("raise RuntimeError('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    assert result_of(run("report", tmp_path / "run", "--json"))["runs"] == 1


def test_without_a_report_the_result_is_shown(undrawn, tmp_path, monkeypatch):
    def full(path, text):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(page_module, "write_text", full)
    result = result_of(outcome := run("train", *POLE, *COMMON, "--log-dir", tmp_path / "run"))
    assert result["eval"] is not None
    assert "no report was written: " in outcome.stderr and os.strerror(errno.ENOSPC) in outcome.stderr


# Runs that are not at their end.


def stop_at(monkeypatch, act, update=2):
    """Call something at the beginning of an update of runs made from now on."""

    def watch(self):
        if self.model.num_updates >= update - 1:
            act()

    monkeypatch.setattr(callbacks.ShowProgress, "_on_rollout_start", watch)


def end_of(path):
    """Return what a page says about the end of a run."""
    text = " ".join(page_of(path).text.split())
    return text.partition("Not at its end")[2].partition("What the doctor finds")[0]


def test_a_run_that_a_signal_stopped_says_which_and_how_to_go_on(undrawn, tmp_path, monkeypatch):
    folder = tmp_path / "my run"
    with monkeypatch.context() as patch:
        stop_at(patch, lambda: signal.raise_signal(signal.SIGTERM))
        outcome = run("train", *POLE, *COMMON, "--log-dir", folder)
    assert outcome.exit_code == 128 + signal.SIGTERM
    result = json.loads(outcome.stdout.splitlines()[-1])
    end = end_of(folder / "report.html")
    assert "stopped with SIGTERM" in end and "after update 1" in end
    assert f"rlenv train --resume '{folder}'" in end
    for number, said in {"SIGINT": "stopped with Ctrl-C", "SIGHUP": "Its terminal was closed"}.items():
        (folder / "result.json").write_text(json.dumps(result | {"signal": number}))
        result_of(run("report", folder, "--json"))
        assert said in end_of(folder / "report.html")
    result_of(run("train", "--resume", folder, "--json", "--episodes", 16, "--report"))
    assert end_of(folder / "report.html") == ""


def test_a_run_that_diverged_says_so_and_goes_on_with_a_smaller_rate(undrawn, tmp_path, monkeypatch):
    def overflow(self, closure=None):
        for group in self.param_groups:
            for weights in group["params"]:
                weights.data.fill_(torch.inf)

    monkeypatch.setattr(torch.optim.Adam, "step", overflow)
    folder = tmp_path / "run"
    outcome = run("train", *POLE, "--episodes", 80, *COMMON, "--log-dir", folder)
    assert outcome.exit_code == 1, outcome.output
    end = end_of(folder / "report.html")
    assert "NaN or infinite" in end and "A smaller learning rate may help" in end
    assert f"rlenv train --resume {folder} --learning-rate 0.001" in end


def test_a_run_that_could_not_say_why_it_ended_was_killed_or_had_no_space(undrawn, tmp_path, monkeypatch):
    folder = tmp_path / "run"

    def full(run, name, value):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), name)

    def begin_to_fail():
        monkeypatch.setattr(Run, "write", full)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder / "file"))

    stop_at(monkeypatch, begin_to_fail)
    assert run("train", *POLE, *COMMON, "--log-dir", folder).exit_code == 1
    assert not (folder / "result.json").exists()
    (folder / ".lock").touch()  # what a kill leaves
    result_of(run("report", folder, "--json"))
    end = end_of(folder / "report.html")
    assert "ended without a word" in end and "killed" in end and "full disk" in end
    assert f"rlenv train --resume {folder}" in end
    shutil.rmtree(folder / "checkpoint")
    result_of(run("report", folder, "--json"))
    assert "It has no checkpoint: it starts again from its beginning" in end_of(folder / "report.html")
    with Lock(folder / ".lock", "busy"):
        result_of(run("report", folder, "--json"))
    end = end_of(folder / "report.html")
    assert "It is still running" in end and "--resume" not in end


def test_samples_hold_each_token_with_its_probability_and_training_its_credit(runs):
    rows = [json.loads(line) for line in (runs / "text" / "samples.jsonl").read_text().splitlines()]
    assert [row["when"] for row in rows] == ["before"] * 4 + ["during"] * 8 + ["after"] * 4
    assert [row["updates"] for row in rows] == [0] * 4 + [1] * 4 + [2] * 4 + [2] * 4
    for row in rows:
        shown = "".join(row["texts"]).replace("<pad>", "")  # a token by its name; the completion is without
        assert shown == row["completion"] + "<eos>" * (not row["truncated"])
        assert len(row["tokens"]) == len(row["texts"]) == len(row["log_probs"])
        assert max(row["log_probs"]) <= 0
        left, _, right = row["prompt"].rstrip("=").partition("+")
        assert row["answer"] == str(int(left) + int(right))
        if row["kind"] == "training":
            assert len(row["advantages"]) == len(row["tokens"])
    before, after = rows[:4], rows[-4:]
    assert [row["prompt"] for row in before] == [row["prompt"] for row in after]


@pytest.fixture
def hostile(runs, tmp_path):
    """Return a run whose every text is an attack."""
    folder = tmp_path / "run"
    shutil.copytree(runs / "text", folder)
    rows = [json.loads(line) for line in (folder / "samples.jsonl").read_text().splitlines()]
    for row in rows:
        texts = [EVIL, "\ud800", *row["texts"][2:]] if len(row["texts"]) > 1 else [EVIL]
        row["log_probs"][-1] = None  # was not finite
        row |= {"prompt": EVIL, "answer": EVIL, "completion": EVIL, "texts": texts, "parts": {EVIL: 0.5}}
    (folder / "samples.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"model": EVIL, "agent": EVIL, EVIL: EVIL}))
    table = (folder / "progress.csv").read_text().splitlines()
    table = [table[0] + ',rollout/parts/"<b>&\u202e', *(line + ",0.5" for line in table[1:])]
    (folder / "progress.csv").write_text("\n".join(table) + "\n")
    return folder


def test_texts_of_models_and_users_never_become_markup(hostile):
    result_of(run("report", hostile, "--json"))
    page = page_of(hostile / "report.html")
    shown = "<script>alert(1)</script><img src=x onerror=alert(1)>{{ 7 * 7 }}&amp;␀␛[31m\\u202e"
    assert page.text.count(shown) > 10
    assert "\\ud800" in page.text
    assert "not finite" in page.text
    assert not any(c in page.text for c in "\x00\x1b\u202e\ufffd")


def test_runs_that_differ_in_their_seed_are_of_one_kind_and_names_of_kinds_are_text(runs, tmp_path):
    for seed in range(4):
        folder = tmp_path / f"run{seed}"
        shutil.copytree(runs / "pole", folder)
        config = json.loads((folder / "config.json").read_text())
        changed = {"seed": seed, "model": "\x1b[31m\x00</text><b>" if seed > 1 else "$x_{ $"}
        (folder / "config.json").write_text(json.dumps(config | changed))
    folders = sorted(tmp_path.glob("run*"))
    kinds = kinds_of(read_runs([*folders, folders[0]]))
    labels = ["model $x_{ $", r"model \x1b[31m\x00</text><b>"]
    assert [(kind.label, len(kind.runs)) for kind in kinds] == [(label, 2) for label in labels]
    out = tmp_path / "all.html"
    result = result_of(run("report", *folders, "--out", out, "--json"))
    assert (result["runs"], result["kinds"]) == (4, 2)
    page = page_of(out)
    assert any(" and ".join(labels) in (value or "") for _, value in page.attributes)
    assert "$x_{ $" in page.text and "\x1b" not in page.text and "\x00" not in page.text

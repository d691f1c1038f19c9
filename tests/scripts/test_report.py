"""`rlenv report`: the page stands alone, and what the runs hold is data in it, never markup."""

import errno
import json
import os
import re
import shutil
from contextlib import nullcontext
from html.parser import HTMLParser

import numpy as np
import pytest
import torch
from inprocess import result_of, run
from runs import WORLDS, arguments, edited

from rlenv._scripts.reports import charts
from rlenv._scripts.reports import page as page_module
from rlenv._scripts.reports.history import read_run
from rlenv._scripts.run import samples
from rlenv._scripts.run.log import markdown
from rlenv._scripts.run.samples import token_texts
from rlenv.agents import Agent
from rlenv.agents.files import Lock
from rlenv.tokenizer import train_tokenizer

VOID = {"meta", "link", "input", "br", "img"}
FOREIGN = {"script", "iframe", "object", "embed", "base", "form", "foreignobject"}
LOADING = {"action", "poster", "srcset", "data"}
EVIL = "<script>alert(1)</script><img src=x onerror=alert(1)>{{ 7 * 7 }}&amp;\x00\x1b[31m\u202e"
POLE = ["train", *WORLDS["CartPole"].split(), "--episodes-per-update", 4, "--log-interval", 1, "--report", "--json"]


class Page(HTMLParser):
    """What a browser makes of a page that stands alone and has both themes; every element is closed."""

    def __init__(self, path):
        super().__init__()
        self.tags, self.attributes, self.open, self.texts, self.styles = [], [], [], [], []
        self.source = path.read_text(encoding="utf-8")
        self.feed(self.source)
        self.close()
        self.text = "".join(self.texts)
        names, values = zip(*self.attributes, strict=True)
        addresses = [value for name, value in self.attributes if name in ("src", "href")]
        assert self.open == [] and not FOREIGN & {*self.tags} and not LOADING & {*names}
        assert all(address.startswith("data:") for address in addresses)
        assert not any(name.startswith("on") for name in names)
        assert "url(" not in " ".join(value or "" for value in values)
        assert not re.search(r"@import|url\(|https?:", "".join(self.styles))
        assert all(rule in self.styles[0] for rule in ("light-dark(", "@media print"))

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        self.open += [tag] * (tag not in VOID)

    def handle_endtag(self, tag):
        assert tag in VOID or self.open.pop() == tag

    def handle_data(self, data):
        (self.styles if self.open and self.open[-1] == "style" else self.texts).append(data)


def copied(run, folder, **config):
    shutil.copytree(run, folder)
    edited(folder / "config.json", **config)
    return folder


def samples_of(run):
    return [json.loads(line) for line in (run / "samples.jsonl").read_text().splitlines()]


def full(*given):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "file")


def test_samples_and_the_page_hold_each_token_with_its_probability_and_training_its_credit(text_run, tmp_path):
    rows = samples_of(text_run)
    moments = dict.fromkeys((row["when"], row["updates"]) for row in rows)
    assert [*moments] == [("before", 0), *(("during", update) for update in (1, 2, 4)), ("after", 6)]
    for row in rows:
        shown = "".join(row["texts"]).replace("<pad>", "")  # a token by its name; the completion is without
        assert shown == row["completion"] + "<eos>" * (not row["truncated"])
        assert len(row["tokens"]) == len(row["texts"]) == len(row["log_probs"])
        assert max(row["log_probs"]) <= 0
        assert row["answer"] == str(sum(map(int, row["prompt"].rstrip("=").split("+"))))
        assert row["kind"] != "training" or len(row["advantages"]) == len(row["tokens"])
    assert [row["prompt"] for row in rows[:4]] == [row["prompt"] for row in rows[-4:]]
    result_of(run("report", text_run, "--out", tmp_path / "page.html", "--json"))
    page = Page(tmp_path / "page.html")
    shown = [row for row in rows if row["updates"] != 2]  # of training the first and the last update
    assert all(row["prompt"] in page.text and f"reward {row['reward']:g}" in page.text for row in shown)
    assert 'title="probability ' in page.source and ", credit " in page.source


def test_a_curve_has_the_figures_of_the_log(pole_run, tmp_path):
    result_of(run("report", pole_run, "--out", tmp_path / "page.html", "--json"))
    page, log = Page(tmp_path / "page.html"), read_run(pole_run)
    points = re.search(r'<polyline class="own" points="([^"]+)"', page.source)[1]
    drawn = np.array([point.split(",") for point in points.split()], dtype=float)
    assert pytest.approx(log.curve("time/iterations", "rollout/ep_rew_mean"), rel=1e-4) == drawn.T


@pytest.mark.parametrize("value", [1e30, -1e300])
def test_ticks_of_a_constant_differ_whatever_its_size(value):
    """As of the loss of a run that has diverged."""
    first, *_, last = charts._ticks(value, value)
    assert first < last
    assert [first, last] == pytest.approx([value, value], rel=1e-9)


def test_the_module_that_a_run_names_is_not_imported(pole_run, tmp_path, monkeypatch):
    folder = copied(pole_run, tmp_path / "run", env_id="foreign_module:Pole-v0")
    (tmp_path / "foreign_module.py").write_text("raise RuntimeError('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    assert result_of(run("report", folder, "--json"))["runs"] == 1


def test_without_a_report_the_result_is_shown(tmp_path, monkeypatch):
    monkeypatch.setattr(page_module, "write_text", full)
    result = result_of(outcome := run(*POLE, "--log-dir", tmp_path / "run"))
    assert result["eval"] is not None
    assert "no report was written: " in outcome.stderr and os.strerror(errno.ENOSPC) in outcome.stderr


# Runs that are not at their end.


def end_of(folder):
    """Return what the page in a folder says about the end of its run."""
    text = " ".join(Page(folder / "report.html").text.split())
    return text.partition("Not at its end")[2].partition("What the doctor finds")[0]


def test_a_run_that_diverged_says_so_and_how_to_go_on(tmp_path, monkeypatch):
    def overflow(self, closure=None):
        for group in self.param_groups:
            for weights in group["params"]:
                weights.data.fill_(torch.inf)

    monkeypatch.setattr(torch.optim.Adam, "step", overflow)
    folder = tmp_path / "run"
    outcome = run(*POLE, "--episodes", 80, "--log-dir", folder)
    assert outcome.exit_code == 1 and "NaN or infinite" in outcome.stderr
    result_of(run("report", folder, "--json"))
    end = end_of(folder)
    assert "NaN or infinite: load others, or lower learning_rate" in end and f"rlenv train --resume {folder}" in end


ENDS = {  # what is left: result.json, and what the page says
    "Ctrl-C": ({"interrupted": True, "signal": "SIGINT"}, "stopped by SIGINT"),
    "verifier": ({"stopped": "10 timeouts", "error": "VerifierError"}, "10 timeouts"),
    "an earlier end": ({"stopped": "10 timeouts", "updates": 1}, "It was killed"),
    "lock": ({}, "running It had logged(?!.*--resume)"),
}


@pytest.mark.parametrize("name", ENDS)
def test_the_end_of_a_run_is_told_from_what_it_left(name, pole_run, tmp_path):
    result, said = ENDS[name]
    folder = copied(pole_run, tmp_path / "run")
    (folder / "result.json").write_text(json.dumps(result))
    with Lock(folder / ".lock", "busy") if name == "lock" else nullcontext():
        result_of(run("report", folder, "--json"))
    assert re.search(said, end_of(folder))


# What runs hold.


def test_texts_of_models_and_users_never_become_markup(text_run, tmp_path):
    folder = copied(text_run, tmp_path / "run", model=EVIL, agent=EVIL, **{EVIL: EVIL})
    rows = samples_of(folder)
    for row in rows:
        row["texts"][:2] = [EVIL, "\ud800"][: len(row["texts"])]
        row["log_probs"][-1] = None  # was not finite
        row |= {"prompt": EVIL, "answer": EVIL, "completion": EVIL, "parts": {EVIL: 0.5}}
    (folder / "samples.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    head, *lines = (folder / "progress.csv").read_text().splitlines()
    table = [head + ',rollout/parts/"<b>&\u202e', *(f"{line},0.5" for line in lines), ""]
    (folder / "progress.csv").write_text("\n".join(table))
    result_of(run("report", folder, "--json"))
    page = Page(folder / "report.html")
    shown = "<script>alert(1)</script><img src=x onerror=alert(1)>{{ 7 * 7 }}&amp;\\x00\\x1b[31m\\u202e"
    assert page.text.count(shown) > 10
    assert "\\ud800" in page.text and 'title="not finite' in page.source
    assert not any(c in page.text for c in "\x00\x1b\u202e\ufffd")


def test_runs_that_differ_in_their_seed_are_of_one_kind_and_names_of_kinds_are_text(pole_run, tmp_path):
    models = ["$x_{ $", "\x1b[31m\x00</text><b>"]
    folders = [copied(pole_run, tmp_path / f"run{i}", seed=i, model=models[i // 2]) for i in range(4)]
    result = result_of(run("report", *folders, folders[0], "--out", tmp_path / "all.html", "--json"))
    assert (result["runs"], result["kinds"]) == (4, 2)
    text = Page(tmp_path / "all.html").text
    assert "$x_{ $" in text and "\x1b" not in text and "\x00" not in text


# Samples: each token's share of the text, the table, the rewards of the verifier.


def test_a_character_belongs_to_the_last_of_its_tokens_and_is_unfinished_before():
    byte_level = train_tokenizer(260, ["plain words"])  # any other character is spelled byte by byte
    ids = byte_level("a🎉")["input_ids"]
    assert token_texts(byte_level, [*ids, byte_level.eos_token_id]) == ["a", "", "", "", "🎉", byte_level.eos_token]
    assert token_texts(byte_level, ids[:3]) == ["a", "", "�"]
    text = "añb 日本 x🎉🎉y"
    assert "".join(token_texts(byte_level, byte_level(text)["input_ids"])) == text


def test_no_text_breaks_out_of_its_cell_in_the_table():
    row = {"prompt": "1|1=", "answer": "\ud800", "completion": "`\x1b[31m\x9b\u202e\n", "reward": 0.5}
    text = markdown(*samples.table([row | {"truncated": False, "parts": {}, "status": "ok"}]))
    assert r"| `1\|1=` | `'\u001b[31m\x9b\u202e\n` | `\ud800` | 0.5 |  |" in text


def test_the_reward_of_an_episode_of_training_is_the_verifiers(tmp_path):
    small = ["--sft-steps", 8, "--sft-examples", 8, "--episodes", 32, "--episodes-per-update", 16]
    changed = ["--eval-episodes", 2, "--kl-coef", 1, "--normalize-rewards", "--learning-rate", 0.001, "--group-size", 4]
    place = ["--log-dir", tmp_path / "run", "--device", "cpu", "--json", "--verifier-arg", "digits=1"]
    result_of(run("train", "--agent", "dapo", *small, *changed, *place))
    rows = [json.loads(line) for line in (tmp_path / "run" / "samples.jsonl").read_text().splitlines()]
    trained = [row for row in rows if row["kind"] == "training"]
    assert trained and [row["reward"] for row in trained] == [float(row["success"]) for row in trained]


def test_samples_that_cannot_be_made_do_not_cost_an_update(tmp_path, monkeypatch):
    def fails(task, group, prompt):
        if task.split == "train":
            raise ValueError("no such problem")

    monkeypatch.setattr(samples, "problem_of", fails)
    outcome = run(*arguments("TextGen"), "--log-dir", tmp_path / "run")
    assert str(outcome.exception) == "no such problem"
    assert Agent.load(tmp_path / "run" / "checkpoint", device="cpu").num_updates == 1

"""`rlenv compare`, as a person runs it, with everything made small."""

import json

import inprocess
import pytest
from _rlenv_scripts import model_defaults
from _rlenv_scripts.study import finished, hold
from inprocess import result_of

from agents import AGENTS
from agents.files import Lock

SMALL = ["--agents", "reinforce,rloo", "--seeds", "2", "--sft-steps", "2", "--sft-examples", "8", "--episodes", "16"]
SMALL += ["--eval-episodes", "4", "--episodes-per-update", "8", "--log-interval", "1", "--verifier-arg", "digits=1"]


def compare(*args):
    return inprocess.run("compare", *args)


def times(folder):
    return {path: path.stat().st_mtime_ns for path in folder.glob("*/seed-*/result.json")}


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "text"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("_rlenv_scripts.study.run_jobs", inprocess.run_jobs)
        return folder, result_of(compare(*SMALL, "--jobs", 2, "--log-dir", folder, "--json"))


def test_all_runs_start_from_one_checkpoint_and_get_equal_budgets(compared):
    folder, report = compared
    warm = json.loads((folder / "warm" / "result.json").read_text())
    assert warm["steps"] == 2
    initial = {(run["seed"], run["initial"]) for run in report["runs"]}
    assert len(initial) == 2  # the episodes of an evaluation depend on the seed alone
    assert (0, warm["eval"]["success_rate"]) in initial
    assert {run["episodes"] for run in report["runs"]} == {16}
    for run in report["runs"]:
        config = json.loads((folder / run["agent"] / f"seed-{run['seed']}" / "config.json").read_text())
        assert (config["model"], config["sft_steps"]) == (str(folder / "warm"), 0)
        assert (config["group_size"], config["verifier_args"]) == (4, {"digits": 1})


def test_the_same_command_again_repeats_no_run(compared):
    folder, report = compared
    before = times(folder)
    outcome = compare(*SMALL, "--log-dir", folder, "--json", "--no-figures")
    assert result_of(outcome) == report
    assert "4 of 4 runs are finished already" in outcome.stderr
    assert times(folder) == before


def test_other_settings_in_the_same_folder_are_an_error_that_names_them(compared):
    folder, _ = compared
    before = times(folder)
    line = inprocess.error_of(compare(*SMALL, "--episodes", 17, "--verifier-arg", "digits=2", "--log-dir", folder))
    assert "other settings (episodes 16, now 17, verifier_args" in line
    assert 'verifier_args {"digits": 1}, now {"digits": 2}' in line
    assert times(folder) == before


def test_a_setting_of_the_agents_reaches_every_run(tmp_path, monkeypatch):
    monkeypatch.setattr("_rlenv_scripts.study.run_jobs", inprocess.run_jobs)
    few = ["--agents", "grpo,ppo", "--seeds", 1, "--sft-steps", 0, "--num-envs", 8]
    compare(*SMALL, *few, "--agent-arg", "num_epochs=3", "--log-dir", tmp_path / "passes", "--no-figures")
    configs = [json.loads(path.read_text()) for path in sorted(tmp_path.glob("passes/*/seed-0/config.json"))]
    assert [(config["agent"], config["agent_args"]) for config in configs] == [
        ("grpo", {"num_epochs": 3}), ("ppo", {"num_epochs": 3}),
    ]  # fmt: skip
    few[1] = "reinforce-baseline"
    compare(*SMALL, *few, "--agent-arg", "baseline=optimal-token", "--log-dir", tmp_path / "tokens", "--no-figures")
    [config] = tmp_path.glob("tokens/*/seed-0/config.json")
    assert json.loads(config.read_text())["baseline"] == "optimal-token", "train has an option for it"
    assert "'reinforce'" in inprocess.error_of(
        compare(*SMALL, "--agent-arg", "num_epochs=3", "--log-dir", tmp_path / "no")
    )
    assert not (tmp_path / "no").exists()


def test_an_interrupt_says_how_to_go_on(tmp_path, monkeypatch):
    def interrupted(jobs, limit, threads):
        yield from ()
        raise KeyboardInterrupt

    monkeypatch.setattr("_rlenv_scripts.study.run_jobs", interrupted)
    outcome = compare("--env", "CartPole-v1", "--agents", "rloo", "--log-dir", tmp_path / "run", "--no-figures")
    assert outcome.exit_code == 130
    assert outcome.stderr.strip() == "Interrupted; the same command continues from here."


def jobs_of(monkeypatch, *args):
    """Return the commands that a comparison would run, without running them."""
    seen = []

    def note(jobs, limit, threads):
        seen.append((jobs, limit, threads))
        for job in jobs:
            job.log.write_text("command\nbroken\n")
            yield job, 1

    monkeypatch.setattr("_rlenv_scripts.study.run_jobs", note)
    report = result_of(compare(*args, "--no-figures", "--json"), code=1)
    assert [(run["exit_code"], run["error"]) for run in report["failed"]] == [(1, "broken")] * len(seen[0][0])
    [(jobs, limit, threads)] = seen
    return [job.command[3:] for job in jobs], limit, threads


def test_control_gets_no_text_options_and_its_own_budget_and_jobs_share_the_cores(tmp_path, monkeypatch):
    monkeypatch.setattr("_rlenv_scripts.study.available_cores", lambda: 8)
    few = ["--env", "CartPole-v1", "--agents", "rloo", "--seeds", 2, "--seed", 3, "--log-dir", tmp_path / "few"]
    commands, limit, threads = jobs_of(monkeypatch, *few)
    assert (limit, threads) == (8, 1) and "--seed=3" in commands[0] and "--seed=4" in commands[1]
    commands, limit, threads = jobs_of(monkeypatch, "--env", "CartPole-v1", "--jobs", 3, "--log-dir", tmp_path / "run")
    alone = [name for name, cls in AGENTS.items() if not cls.needs_teacher]
    assert (len(commands), limit, threads) == (len(alone) * 5, 3, 2)
    assert {command[0] for command in commands} == {"train"}
    assert all("--timesteps=1000000" in command and "--stop-reward=475.0" in command for command in commands)
    assert not any("sft" in word or "group" in word for command in commands for word in command)


def test_runs_at_the_same_time_share_the_free_memory(tmp_path, monkeypatch):
    plan, planned = model_defaults.passes, []

    def noted(options, together):
        planned.append((options["agent"], options["log_kl"], options["sft_steps"], together))
        assert plan(options, together) == options["micro_batch_tokens"], "what was asked for, or all in one pass"
        return 40 if options["agent"] == "ppo" else None

    monkeypatch.setattr("_rlenv_scripts.study.passes", noted)
    runs = ["--model", "tiny", "--sft-steps", 0, "--agents", "rloo,ppo", "--log-dir", tmp_path / "run"]
    commands, *_ = jobs_of(monkeypatch, *runs, "--seeds", 2, "--jobs", 3)
    assert sorted(planned) == [("ppo", True, 0, 3), ("rloo", True, 0, 3)], "once for each agent"
    assert [("--micro-batch-tokens=40" in each, "--agent=ppo" in each) for each in commands] == [
        (False, False),
        (True, True),
    ] * 2
    jobs_of(monkeypatch, *runs, "--seeds", 1, "--jobs", 8, "--overwrite")
    assert {together for *_, together in planned[2:]} == {2}, "no more than there are runs"


def test_a_run_that_still_writes_is_not_deleted(tmp_path, monkeypatch):
    """As after `kill -9` of the comparison."""
    given = ["--env", "CartPole-v1", "--agents", "rloo", "--seeds", 1, "--log-dir", tmp_path / "run"]
    jobs_of(monkeypatch, *given)
    folder = tmp_path / "run" / "rloo" / "seed-0"
    folder.mkdir()
    with Lock(folder / ".lock", "busy"):
        assert "an earlier run still writes to" in inprocess.error_of(compare(*given))
        assert folder.is_dir()


@pytest.mark.parametrize("given", ["run folder", "no warm start"])
def test_without_a_warm_start_the_runs_start_from_the_model(compared, given, tmp_path, monkeypatch):
    model = compared[0] / "warm" if given == "run folder" else "tiny"
    options = ["--verifier-arg", "digits=1", "--model", model, *([] if given == "run folder" else ["--sft-steps", 0])]
    commands, *_ = jobs_of(monkeypatch, *options, "--agents", "grpo", "--seeds", 1, "--log-dir", tmp_path / "run")
    [command] = commands
    assert {f"--model={model}", "--sft-steps=0", "--episodes=60000", "--group-size=4", "--log-kl"} <= set(command)


def test_overwrite_does_not_start_anew_where_torchrun_restarted_it(tmp_path, monkeypatch):
    folder = tmp_path / "run"
    command = ["--env", "CartPole-v1", "--agents", "rloo", "--overwrite", "--log-dir", folder]
    jobs_of(monkeypatch, *command)
    (folder / "finished").touch()
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    jobs_of(monkeypatch, *command)
    assert (folder / "finished").exists()
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "0")
    jobs_of(monkeypatch, *command)
    assert not (folder / "finished").exists()


def test_more_agents_and_more_seeds_extend_a_comparison(tmp_path, monkeypatch):
    folder = tmp_path / "run"
    jobs_of(monkeypatch, "--env", "CartPole-v1", "--agents", "rloo", "--seeds", 1, "--log-dir", folder)
    jobs_of(monkeypatch, "--env", "CartPole-v1", "--agents", "ppo", "--seeds", 2, "--log-dir", folder)
    settings = json.loads((folder / "compare.json").read_text())
    assert (settings["agents"], settings["seeds"]) == ("rloo,ppo", 2)


@pytest.mark.parametrize(
    "text", ['{"stopped": "why", "interrupted": false}', '{"interrupted": true}', '{"interrup', "{}", None]
)
def test_a_run_that_did_not_come_to_its_end_is_not_finished(text, tmp_path):
    if text is not None:
        (tmp_path / "result.json").write_text(text)
    assert finished(tmp_path) is None


def test_two_comparisons_do_not_share_a_folder(tmp_path):
    (tmp_path / "compare.json").write_text("{}")
    with hold(tmp_path):
        said = inprocess.error_of(compare("--env", "CartPole-v1", "--agents", "reinforce", "--log-dir", tmp_path))
    assert "another rlenv compare is running in" in said and not list(tmp_path.glob("reinforce*"))

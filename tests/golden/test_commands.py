"""One golden run per command: exit code, files, keys of the JSON, columns of the log, and figures within margins."""

from pathlib import Path

import pytest
from _rlenv_scripts import main
from golden import Run, about, check, forget_modules, write_inputs

SMALL = "--episodes-per-update 8 --eval-episodes 4 --log-interval 1 --device cpu --log-dir {out} --json"
RESULT = (
    "run_dir env agent seed timesteps trained_timesteps episodes updates seconds sft_steps sft_loss sft_seconds "
    "initial_eval eval failures interrupted"
)
POLICY = "/config.json /result.json /checkpoint/agent.json /checkpoint/manifest.json /checkpoint/training.safetensors"
TRAINED = f"{POLICY} /checkpoint-000000 /progress.csv /*/events.out.tfevents.*"
MODEL = "/checkpoint/policy/model/model.safetensors /checkpoint/policy/model/tokenizer.json"
TEXT = f"{TRAINED} {MODEL} /samples.md /samples.jsonl"
LOGGED = (
    "eval/mean_ep_length eval/mean_reward time/episodes time/iterations time/total_timesteps time/trained_timesteps "
    "time/fps time/acting_frac time/environment_frac time/training_frac rollout/ep_len_mean rollout/ep_rew_mean "
    "rollout/frac_reward_zero_std rollout/group_size_min rollout/reward_std rollout/truncated_frac train/approx_kl "
    "train/entropy_loss train/grad_norm train/learning_rate train/logp_gap_max train/loss train/policy_loss"
)
CRITIC = f"{LOGGED} train/explained_variance train/value_loss"
SOLVED = f"{LOGGED} eval/success_rate rollout/success_rate rollout/special_tokens"
TURNS = f"{SOLVED} rollout/turns"
FILE = "--problems words.jsonl --column prompt=q --column answer=a"
NO_FAILURES = {"timeout": 0, "error": 0, "not_applicable": 0, "skipped_updates": 0}

COMMANDS = {
    "train on sums": Run(
        f"train --verifier-arg digits=1 --sft-steps 4 --sft-examples 8 --sft-batch-size 4 --episodes 16 {SMALL}",
        RESULT,
        {"env": "TextGen-v0", "agent": "reinforce-baseline", "updates": 2, "failures": NO_FAILURES}
        | {"eval.split": "test", "eval.deterministic": True, "sft_loss": about(1.7395)},
        files=TEXT,
        columns=SOLVED,
    ),
    "train on a file with chat prompts": Run(
        f"train --verifier exact --problems talks.jsonl --model model --episodes 8 --sft-steps 1 --sft-examples 4 "
        f"--max-new-tokens 4 {SMALL}",
        RESULT,
        {"updates": 1, "sft_loss": about(6.856), "time/episodes": 0},
        files=f"{TEXT} /checkpoint/policy/model/chat_template.jinja",
        columns=SOLVED,
    ),
    "train on CartPole": Run(
        f"train --env CartPole-v1 --env-arg max_episode_steps=40 --episodes 16 {SMALL}",
        RESULT,
        {"env": "CartPole-v1", "updates": 2, "eval.success_rate": None, "train/entropy_loss": about(-0.693, 0.05)},
        files=f"{TRAINED} /checkpoint/policy/policy.safetensors",
        columns=LOGGED,
    ),
    "train with a tool": Run(
        f"train --tool my_tools.py:double --tool calculator --verifier-workers 0 --max-turns 2 --max-new-tokens 8 "
        f"--max-reply-tokens 30 --sft-steps 0 --episodes 8 {SMALL}",
        RESULT,
        {"updates": 1, "eval.mean_turns": 1.0},
        files=TEXT,
        columns=f"{TURNS} rollout/tool_calls rollout/tool_errors",
    ),
    "train with LoRA": Run(
        f"train --model model --lora-rank 4 --problems talks.jsonl --verifier rewards.py:vowels --kl-coef 0.1 "
        f"--episodes 8 --max-new-tokens 4 --sft-steps 0 {SMALL}",
        RESULT,
        {
            "updates": 1,
            "train/entropy_loss": about(-5.048),
            "train/learning_rate": about(0.0003),
            "train/kl_ref": about(0),
        },
        files=f"{TRAINED} /checkpoint/policy/model/adapter_model.safetensors /checkpoint/reference",
        columns=f"{SOLVED} train/kl_ref",
    ),
    "sft": Run(
        f"sft {FILE} --epochs 2 --sft-batch-size 8 --verifier exact --eval-episodes 4 --device cpu --log-dir {{out}} "
        "--json",
        "run_dir env seed steps examples loss initial_eval_loss eval_loss seconds eval interrupted",
        {"examples": 30, "steps": 8, "initial_eval_loss": about(4.5878), "eval_loss": about(2.67, 0.1)},
        files=f"{POLICY} {MODEL}",
    ),
    "reward-model": Run(
        "reward-model --pairs pairs.jsonl --column split=split --batch-size 10 --epochs 2 --device cpu --log-dir {out} "
        "--json",
        "run_dir seed steps learning_rate pairs held_out_pairs loss seconds initial_eval eval interrupted",
        {"pairs": 30, "held_out_pairs": 6, "steps": 6, "eval.accuracy": 1.0, "initial_eval.loss": about(0.646)},
        files="/config.json /result.json /model/model.safetensors /model/tokenizer.json",
    ),
    "evaluate": Run(
        "evaluate {text} --episodes 4 --samples 2 --out {out}.jsonl --device cpu --json",
        "episodes mean_reward success_rate mean_ep_length deterministic split success_interval truncated_share "
        "problems reward_std sampled completions",
        {"episodes": 4, "problems": 4, "split": "test", "sampled.samples": 2, "sampled.episodes": 8},
        files=".jsonl .json",
    ),
    "report": Run(
        "report {text} --out {out}.html --json", "report runs kinds findings", {"runs": 1, "kinds": 1}, files=".html"
    ),
    "doctor": Run("doctor {text} --fail-on warning", said=("[equal-groups]",), code=1),
    "play": Run(
        "play --verifier arith --verifier-arg digits=1 --episodes 1 --seed 3",
        typed="5\n/end\n",
        said=('prompt  "6+9="', 'answer  "5" <eos>', "reward  0  not solved", 'right   "15"', "1 episode"),
    ),
    "watch": Run(
        "play {pole} --watch --episodes 1 --seed 3 --json",
        "episodes mean_reward success_rate ended played",
        {"episodes": 1},
    ),
    "export": Run(
        "export {text} {out} --json",
        "folder checkpoint",
        files="/README.md /config.json /generation_config.json /model.safetensors /tokenizer.json /rlenv_export.json",
    ),
    "verifiers list": Run("verifiers list", said=("arith", "weighted")),
    "verifiers show": Run("verifiers show arith -n 2 --seed 1", said=("demonstration", "wrong", "empty", "digits")),
    "verifiers lint": Run("verifiers lint arith --json", "verifiers skipped"),
    "check-gradient": Run(
        "check-gradient rloo --group-size 2 --json",
        "rloo",
        {"rloo.rollouts": 49, "rloo.meaning": "unbiased", "rloo.direction": about(1)},
    ),
    "lab": Run(
        "lab snr --out {out} --json",
        "lab claim held checks figures seed seconds",
        {"lab": "snr", "held": True},
        files="/snr.csv /snr.json /snr.png",
    ),
    "bench": Run("bench --list", said=("trl-grpo", "sb3", "generate")),
    "info": Run("info --json", "versions extras machine environment"),
    "completion": Run("completion bash", said=("_RLENV_COMPLETE",)),
    "train: what would fit": Run("train --dry-run --json --device cpu", "parameters bytes peaks available"),
}
PATHS = {
    "Pendulum with gSDE and squashing": Run(
        f"train --env Pendulum-v1 --env-arg max_episode_steps=20 --agent ppo --policy-arg use_sde=true --policy-arg "
        f"squash_output=true --policy-arg normalize_observations=true --normalize-rewards --episodes 8 {SMALL}",
        RESULT,
        {"timesteps": 160, "rollout/truncated_frac": 1.0},
        files=TRAINED,
        columns=f"{CRITIC} train/clip_fraction",
    ),
    "images": Run(
        f"train --env worlds:Squares-v0 --model CnnPolicy --agent a2c --episodes 16 {SMALL}",
        RESULT,
        {"timesteps": 64, "rollout/ep_len_mean": 4.0, "train/entropy_loss": about(-0.693, 0.05)},
        files=TRAINED,
        columns=CRITIC,
    ),
    "a teacher from a checkpoint": Run(
        f"train --agent distillation --teacher {{text}} --verifier-arg digits=1 --sft-steps 2 --sft-examples 8 "
        f"--episodes 8 --group-size 2 {SMALL}",
        RESULT,
        {"agent": "distillation", "updates": 1, "train/clip_fraction": 0.0},
        files=f"{TEXT} /checkpoint/reference",
        columns=f"{SOLVED} train/clip_fraction train/kl_teacher",
    ),
    "demonstrations of a dialogue": Run(
        "sft --verifier guess --sft-steps 3 --sft-examples 8 --eval-episodes 4 --device cpu --log-dir {out} --json",
        "run_dir env seed steps examples loss initial_eval_loss eval_loss seconds eval interrupted",
        {"steps": 3, "examples": 8},
        files=f"{POLICY} {MODEL}",
    ),
    "a curriculum": Run(
        f"train --verifier-arg levels=2 --curriculum 0.5 --sft-steps 0 --episodes 8 {SMALL}",
        RESULT,
        {"updates": 1},
        columns=f"{SOLVED} rollout/success_rate/level_1",
    ),
    "a world of Gymnasium": Run(
        f"train --verifier gym:worlds:Echo-v0 --sft-steps 0 --max-new-tokens 4 --episodes 8 {SMALL}",
        RESULT,
        {"eval.mean_turns": 2.0, "rollout/turns": 2.0, "rollout/reply_max_frac": 1.0},
        files=TEXT,
        columns=f"{TURNS} rollout/reply_max_frac",
    ),
    "an environment class": Run(
        f"train --verifier numbers_world.py:Numbers --max-turns 2 --sft-steps 0 --max-new-tokens 6 --episodes 8 "
        f"{SMALL}",
        RESULT,
        {"rollout/ep_rew_mean": 0.0},
        columns=f"{TURNS} rollout/tool_calls rollout/tool_errors",
    ),
    "a plugin of a wheel": Run(
        f"train --verifier letters --sft-steps 2 --sft-examples 8 --episodes 8 {SMALL}",
        RESULT,
        {"updates": 1, "failures": NO_FAILURES},
        columns=SOLVED,
    ),
}


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    write_inputs(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.syspath_prepend(tmp_path / "letters-1.0-py3-none-any.whl")
    return {"out": tmp_path / "out"}


@pytest.mark.parametrize("name", [*COMMANDS, *PATHS])
def test_a_command_leaves_what_it_always_left(
    name: str, places: dict[str, Path], text_run: Path, pole_run: Path
) -> None:
    try:
        check((COMMANDS | PATHS)[name], text=text_run, pole=pole_run, **places)
    finally:
        forget_modules()


def test_every_command_has_a_golden_run() -> None:
    assert {run.line.split()[0] for run in COMMANDS.values()} | {"compare", "serve"} == {
        *main.COMMANDS
    }  # test_paths.py

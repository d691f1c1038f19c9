"""What is saved, loaded and stepped over while a run goes on."""

import shutil
from pathlib import Path

import torch
from museum import OURS, Test, planted

from agents.checkpoints import checkpoint
from agents.core import files
from agents.estimators.baselines import RunningMean
from agents.learner.learner import Learner
from agents.learner.optimizer import Adam, PolicyOptimizer
from agents.policies.control import policy as control
from agents.policies.language import policy as language_model
from agents.policies.language import policy_folder
from agents.policies.language.training import forward
from agents.rollouts import collector
from agents.trainer import agent, saving
from agents.trainer.proximal import ProximalAgent
from rlenv import _neighbours

LENGTHS = {"test_fraction": 0.0, "max_prompt_tokens": 6, "max_new_tokens": 4}


@planted(
    47,
    "Lightning-AI/pytorch-lightning#688, pytorch/pytorch#170244",
    Test(
        "agents/trainer/test_surface.py::test_a_save_that_fails_half_way_leaves_the_old_checkpoint",
        kind="control",
        target="agents.checkpoints.state.save_file",
    ),
)
def test_a_save_in_place(patch):
    """A checkpoint is written over the last one, and a full disk leaves neither."""

    def in_place(path, fill, previous=None):
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir(parents=True)
        fill(path)

    patch.setattr(checkpoint, "write_folder", in_place)


@planted(
    48,
    "modelscope/ms-swift#9935, huggingface/transformers#17032, huggingface/nanotron#245",
    Test(
        "agents/checkpoints/test_checkpoint.py::test_every_agent_comes_back_and_goes_on_as_it_would_have",
        name="rloo",
        kind="control",
    ),
)
def test_the_optimizer_is_not_restored(patch):
    """Loading restores the weights and leaves Adam's moments at zero."""
    patch.setattr(Learner, "load_training_state", lambda self, state: None)


RESUMED = Test("agents/checkpoints/test_resume.py::test_a_break_changes_nothing", name="rloo", kind="text")


@planted(48, "modelscope/ms-swift#9935", RESUMED)
def test_reseeded_after_loading(patch):
    """The generator is restored, then seeded again: the same actions are sampled a second time."""
    load = agent.Agent.load.__func__

    def reseeded(cls, *args, **kwargs):
        loaded = load(cls, *args, **kwargs)
        loaded.generator.manual_seed(loaded.seed)
        return loaded

    patch.setattr(agent.Agent, "load", classmethod(reseeded))


@planted(48, "hill-a/stable-baselines#301", RESUMED)
def test_the_problems_start_anew(patch):
    """A resumed run poses the problems of its first updates again."""
    patch.setattr(collector.Collector, "load_state_dict", lambda self, state: None)


@planted(
    48,
    "paiml/entrenar#294",
    Test("agents/checkpoints/test_resume.py::test_a_break_changes_nothing", name="reinforce-baseline", kind="control"),
)
def test_the_baseline_starts_anew(patch):
    """The running mean of the returns is not restored."""
    patch.setattr(RunningMean, "load_state_dict", lambda self, state: None)


@planted(
    None,
    OURS,
    Test(
        "agents/checkpoints/test_resume.py::test_a_checkpoint_written_within_a_rollout_is_of_the_moment_before",
        name="ppo",
    ),
)
def test_a_checkpoint_of_the_middle_of_a_rollout(patch):
    """A checkpoint that a callback writes holds the generator of that moment, and the rollout is played again."""
    patch.setattr(agent.Agent, "before_rollout", property(lambda self: None, lambda self, moment: None), raising=False)


@planted(
    47,
    "Lightning-AI/pytorch-lightning#19970",
    Test("agents/checkpoints/test_checkpoint.py::test_a_file_that_was_changed_is_named", change="bit"),
    error=BaseException,
)
def test_damage_is_not_noticed(patch):
    """A flipped bit in the weights goes unnoticed."""
    patch.setattr(checkpoint, "check_seal", lambda folder: None)


@planted(
    49,
    "DLR-RM/stable-baselines3#2281, lsdefine/simple_GRPO#48",
    Test("test_architecture.py::test_nothing_is_evaluated_unpickled_or_swallowed"),
)
def test_checkpoints_are_unpickled(patch):
    """The state of the training is loaded without weights_only, and runs code that is in the file."""
    read = Path.read_text
    patch.setattr(
        Path, "read_text", lambda self, *args, **kwargs: read(self, *args, **kwargs).replace(", weights_only=True", "")
    )


@planted(
    50,
    "lsdefine/simple_GRPO#13, StarsfieldAI/R1-V#69, hpcaitech/ColossalAI#3732",
    Test(
        "agents/learner/test_optimizer.py::test_a_gradient_that_is_no_number_is_skipped_and_counted",
        where="actor",
        bad=float("nan"),
    ),
)
def test_a_step_on_nan(patch):
    """One gradient of NaN makes every weight NaN, and sampling fails hours later."""

    def step(self, new_update=True):
        norms = [float(torch.nn.utils.clip_grad_norm_(side, self.max_grad_norm)) for side in self.sides]
        self.adam.step()
        return norms[0]

    patch.setattr(PolicyOptimizer, "step", step)


# Bugs of this project.


@planted(
    None,
    OURS,
    Test("agents/checkpoints/test_checkpoint.py::test_a_save_that_was_killed_between_its_renames_is_found"),
    error=ValueError,
)
def test_a_killed_save_is_not_found(patch):
    """After a kill between two renames, the checkpoint is whole, but no command finds it."""
    patch.setattr(checkpoint, "whole_folder", lambda path: path)


@planted(
    None,
    OURS,
    Test(
        "agents/checkpoints/test_checkpoint.py::test_weights_that_are_not_finite_are_not_written_over_good_ones",
        value=float("nan"),
    ),
)
def test_nan_is_saved_over_good_weights(patch):
    """A run that diverged replaces its last good checkpoint by one of NaN."""
    write = saving.write_checkpoint

    class Silent:
        def __init__(self, policy):
            self.save = policy.save

        def named_parameters(self):
            return ()

    def unseen(path, facts, policy, *rest):
        write(path, facts, Silent(policy), *rest)

    patch.setattr(saving, "write_checkpoint", unseen)


@planted(
    None,
    OURS,
    Test(
        "agents/checkpoints/test_checkpoint.py::test_tensors_that_do_not_fit_are_not_made_up",
        change=lambda tensors, name: tensors.pop(name),
        message="missing",
        env="CartPole-v1",
        file="policy/policy.safetensors",
        name="action_net.bias",
    ),
)
def test_missing_weights_are_made_up(patch):
    """Weights that a checkpoint lacks stay as they were drawn."""

    def lenient(module, file):
        module.load_state_dict(load_file(file), strict=False)

    load_file = control.load_weights.__globals__["load_file"]
    patch.setattr(control, "load_weights", lenient)


@planted(
    None,
    OURS,
    Test(
        "agents/checkpoints/test_checkpoint.py::test_loading_imports_no_module_that_only_the_checkpoint_names",
        facts={"env_kwargs": {"verifier": "somebodys_verifiers:shout", "problems": ["12+34="], **LENGTHS}},
    ),
)
def test_a_checkpoint_names_what_is_imported(patch):
    """A module that a checkpoint names as its verifier's is imported, and runs its code."""
    patch.setattr(saving, "named_by_checkpoint", lambda env_id, env_kwargs, trust, saved: dict(env_kwargs))


@planted(
    None,
    OURS,
    Test("agents/trainer/test_surface.py::test_switches_and_the_kind_of_attention_come_back", model="object"),
)
def test_switches_are_not_saved(patch):
    """A loaded policy has the default switches, whatever it was trained with."""
    patch.setattr(policy_folder, "_SWITCHES", ())


@planted(None, OURS, Test("agents/core/test_settings.py::test_a_checkpoint_of_fused_adam_goes_on_without_it"))
def test_fused_kernels_come_back(patch):
    """Fused kernels, which an old checkpoint asks for, change weights without telling the KV cache."""
    patch.setattr(Adam, "load_state_dict", torch.optim.Adam.load_state_dict)


@planted(
    None,
    OURS,
    Test(
        "agents/policies/language/test_models.py::test_a_model_stored_in_bfloat16_is_trained_in_float32_unless_bfloat16_is_asked_for"
    ),
)
def test_trained_as_it_was_stored(patch):
    """A model stored in bfloat16 is trained in bfloat16, where most updates round to nothing."""
    load_model = language_model.load_model

    def as_stored(spec, vocab_size, max_length, dtype, attention=None):
        return load_model(spec, vocab_size, max_length, dtype or "bfloat16", attention)

    patch.setattr(language_model, "load_model", as_stored)


@planted(
    None,
    OURS,
    Test(
        "agents/learner/test_optimizer.py::test_a_gradient_of_zero_changes_nothing_whatever_adam_remembers", none=False
    ),
)
def test_momentum_without_evidence(patch):
    """When all rewards are equal, Adam's momentum still moves the weights."""

    def step(self, new_update=True):
        norms = [float(torch.nn.utils.clip_grad_norm_(side, self.max_grad_norm)) for side in self.sides]
        self.adam.step()
        return norms[0]

    patch.setattr(PolicyOptimizer, "step", step)


@planted(
    None, OURS, Test("agents/trainer/test_agent.py::test_an_update_of_many_bad_steps_counts_once"), error=RuntimeError
)
def test_bad_steps_are_counted_one_by_one(patch):
    """Each skipped step counts as a skipped update, so one bad update ends the run."""
    step = PolicyOptimizer.step
    patch.setattr(PolicyOptimizer, "step", lambda self, fault="", new_update=True: step(self, fault, True))


@planted(
    None,
    OURS,
    Test("agents/trainer/test_agent.py::test_training_for_less_than_a_rollout_still_trains", schedule="linear"),
)
def test_the_last_learning_rate_is_zero(patch):
    """The learning rate is set after the rollout is counted, so the last update, or the only one, changes nothing."""
    updates, collect = agent.Agent.updates, agent.Agent.collect_rollout

    def noted(self, total_timesteps, *args):
        self.goal = total_timesteps
        return updates(self, total_timesteps, *args)

    def counted_before(self, callback):
        rollout = collect(self, callback)
        self.policy_optimizer.set_progress(max(1.0 - self.num_timesteps / self.goal, 0.0))
        return rollout

    patch.setattr(agent.Agent, "updates", noted)
    patch.setattr(agent.Agent, "collect_rollout", counted_before)


@planted(
    None,
    OURS,
    Test("agents/algorithms/test_proximal.py::test_leaving_out_rows_that_teach_nothing_changes_no_step", parts=3),
)
def test_idle_rows_are_left_out_before_the_parts_are_made(patch):
    """Rows without a gradient are left out before a rollout is split, so the parts are others, and so is every step."""
    batches = ProximalAgent.batches

    def without_idle(self, batch):
        return batches(self, batch.select(self._rows_to_train(batch)))

    patch.setattr(ProximalAgent, "batches", without_idle)


@planted(None, OURS, Test("agents/core/test_files.py::test_a_second_writer_is_told_and_harms_nothing"))
def test_two_writers(patch):
    """Two runs write the same checkpoint folder at the same time, and neither is told."""

    class Open:
        def __init__(self, file, busy):
            pass

        def __enter__(self):
            return self

        def __exit__(self, *error):
            pass

    patch.setattr(files, "Lock", Open)


@planted(None, OURS, Test("rlenv/test_neighbours.py::test_a_foreign_package_is_named_by_its_file_without_importing_it"))
def test_a_package_of_the_same_name(patch):
    """Another distribution's package `agents` is imported as if it were ours."""
    patch.setattr(_neighbours, "_MARK", "")


@planted(
    None, OURS, Test("agents/checkpoints/test_resume.py::test_tensors_of_a_checkpoint_have_aligned_memory_of_their_own")
)
def test_weights_stay_where_the_file_was_mapped(patch):
    """Weights that are used in the memory of their file round otherwise than those that were saved."""

    clone = torch.Tensor.clone

    def mapped(self, *args, **kwargs):
        if self.requires_grad or not self.is_floating_point():
            return clone(self, *args, **kwargs)
        room = self.new_empty(self.numel() + 16)
        return room[2 : 2 + self.numel()].view(self.shape).copy_(self)

    patch.setattr(torch.Tensor, "clone", mapped)


@planted(
    None,
    OURS,
    Test(
        "reliability/test_determinism.py::test_no_gradient_of_a_language_model_depends_on_the_order_of_threads",
        critic="head",
    ),
)
def test_threads_add_up_in_any_order(patch):
    """Steps that share an output are added up in the order in which threads come by."""
    for module in (forward, language_model):
        patch.setattr(module, "take_rows", lambda values, index: values[index])

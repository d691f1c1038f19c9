"""What a vector environment can do beyond Gymnasium's interface."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(frozen=True)
class EnvTraits:
    """What a vector environment declares in `metadata["traits"]`, a mapping with these keys.

    Beside them, the metadata of a text environment has its "tokenizer", its "stop_token_ids", the "hidden_token_ids"
    that are not in texts, which are its other special tokens, and "part_weights": the weights by name if the reward is
    a weighted sum of parts of the verdict.

    Attributes:
        finished_slots_may_step: without autoreset, stepping a finished slot does nothing and pays 0.
        ends_are_in_infos: a step whose infos have no "completion" ends no episode.
        verdicts_in_infos: the infos of every end have a "verdict_status", or a "verdict_future" for a later one.
        replies_in_infos: tokens that the environment appends to a text after an action are in the infos of that step,
            as their number "appended"; slots that wait for them after a step, whose next action is ignored, are in its
            infos as "waiting". A reward while a slot waits is its last action's.
        groups_span_slots: group numbers in the infos are unique over all slots.
        reset_options: what `reset` takes in `options` at the start of each rollout: "progress", a mapping with
            `num_updates` and `max_updates` (None if unknown).
        agent_settings: constructor arguments that an agent may choose, such as "device".
    """

    finished_slots_may_step: bool = False
    ends_are_in_infos: bool = False
    verdicts_in_infos: bool = False
    replies_in_infos: bool = False
    groups_span_slots: bool = False
    reset_options: tuple[str, ...] = ()
    agent_settings: tuple[str, ...] = ()

    @classmethod
    def of(cls, env: object) -> EnvTraits:
        """Return the traits of a vector environment, or of a class of them.

        Raises:
            ValueError: if it declares traits of other names.
        """
        declared = getattr(env, "metadata", {}).get("traits", {})
        allowed = [entry.name for entry in fields(cls)]
        unknown = [name for name in declared if name not in allowed]
        if unknown:
            raise ValueError(f"unknown traits in the environment's metadata: {unknown}; allowed: {', '.join(allowed)}")
        return cls(**declared)

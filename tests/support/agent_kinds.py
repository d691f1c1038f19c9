"""Agents with text and with control, of which the fast tests take one each and the slow ones the other."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from agents import AGENTS, DrGRPO
from agents.algorithms._group_relative import GroupRelative
from agents.trainer.proximal import PassesAgent

PASSES = [name for name, cls in AGENTS.items() if issubclass(cls, PassesAgent)]
GROUPED = [name for name, cls in AGENTS.items() if cls.default_group_size > 1]
LIKE_GRPO = [  # what they keep and compare is what GRPO keeps and compares
    name for name, cls in AGENTS.items() if issubclass(cls, (GroupRelative, DrGRPO)) and name != "grpo"
]


def each_agent_once(text: Collection[str], rare: Collection[str] = ()) -> pytest.MarkDecorator:
    """Parametrize a test with `name` and `kind`: fast is text for those named and control for the others.

    Args:
        text: names of the agents that are fast with text, because something of theirs is only there.
        rare: names of those that are slow with both.
    """
    assert {*text, *rare} <= set(AGENTS)
    pairs = [(name, kind) for name in AGENTS for kind in ("control", "text")]
    return pytest.mark.parametrize(
        ("name", "kind"),
        [
            pytest.param(
                name,
                kind,
                marks=[] if (name in text) == (kind == "text") and name not in rare else [pytest.mark.slow],
                id=f"{name}-{kind}",
            )
            for name, kind in pairs
        ],
    )

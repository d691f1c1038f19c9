"""Runs that are killed and resumed from the command line end as one without a break does, digest by digest."""

import random

import pytest
from kills import Count, killed_run, seconds_of
from runs import WORLDS, arguments, differences, everything

from agents import AGENTS


def campaign(start, folder, world, agent, kills, orphans_after=None):
    """Kill and resume one run so many times; return what was counted and where it differs from an unbroken run."""
    command = arguments(world, agent)
    seconds = seconds_of(start, command, folder / "whole")
    count, run = Count(), folder / "killed"
    killed_run(start, command, run, kills, seconds, random.Random(f"{world} {agent}"), count, orphans_after)
    wanted = everything(folder / "whole")
    found = []
    for each in sorted(folder.glob("killed*")):
        if (each / "result.json").is_file():
            found += differences(wanted, everything(each))
    return count, found


@pytest.mark.parametrize(("world", "agent"), [("CartPole", "ppo"), ("TextGen", "reinforce-baseline")])
def test_a_run_that_is_killed_ends_as_one_without_a_break(world, agent, start, tmp_path):
    count, found = campaign(start, tmp_path, world, agent, kills=3)
    assert count.kills == 3
    assert count.failures + found == []


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("agent", AGENTS)
def test_twenty_kills(world, agent, start, tmp_path, capsys):
    count, found = campaign(start, tmp_path, world, agent, kills=20)
    with capsys.disabled():
        print(f"\n{world} {agent}: {count}; {len(found)} differences")
    assert count.kills == 20
    assert count.failures + found == []

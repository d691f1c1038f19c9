"""The labs on other objectives and on parts of rewards: their theory, and that they can fail."""

from __future__ import annotations

import copy
import itertools
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from _rlenv_labs import pass_at_k, reward_parts
from _rlenv_labs.base import Finding
from _rlenv_scripts.reports.figures.plots import save_figure

from agents import GDPO, GRPO, RLOO

# pass-at-k


@pytest.fixture(scope="module")
def finding() -> Finding:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"RUNS": 1, "UPDATES": 20, "SHOWN": 10, "STEPS": 400}.items():
            patch.setattr(pass_at_k, name, value)
        return pass_at_k.run(0)


def test_every_group_is_counted_once() -> None:
    assert len(pass_at_k.COUNTS) == math.comb(18, 2)
    pi = torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64)
    assert float((pass_at_k.ORDERS * (pi**pass_at_k.COUNTS).prod(1)).sum()) == pytest.approx(1, abs=1e-12)


def test_the_gradients_are_those_of_the_objectives_anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pass_at_k, "START", torch.tensor([0.05, 0.6, 0.35], dtype=torch.float64))
    gaps = pass_at_k.objective_gaps()
    assert list(gaps) == ["RLOO", "MaxRL", "PKPO, k = 8"] and max(gaps.values()) < 1e-10


def test_the_largest_pass_at_k_is_known_where_it_is_easy() -> None:
    assert pass_at_k.largest(1) == pytest.approx(0.75)
    by_hand = max(1 - 0.75 * (1 - p) ** 2 - 0.25 * p**2 for p in (0.74, 0.75, 0.76))
    assert pass_at_k.largest(2) == pytest.approx(by_hand)


def test_pass_at_k_says_what_it_claims_of_the_exact_part(finding: Finding) -> None:
    assert [check.held for check in finding.checks[:2]] == [True, True]
    assert finding.checks[3].held  # the third needs more steps, the sampled ones more updates
    assert len({tuple(row) for row in finding.rows}) == 1


@pytest.mark.parametrize(
    ("arm", "figure", "value", "failing"),
    [
        ("GRPO", "pass@8", 0.9, 1),
        ("RLOO", "pass@1", 0.6, 1),
        ("PKPO, k = 8", "pass@8", 0.98, 2),
        ("MaxRL", "common", 0.8, 3),
        ("GRPO", "pass@8, most", 0.96, 4),
        ("MaxRL", "pass@8, least", 0.9, 4),
        ("PKPO, k = 8", "pass@1, least", 0.3, 5),
    ],
)
def test_pass_at_k_checks_fail_where_they_should(arm: str, figure: str, value: float, failing: int) -> None:
    plain = {"pass@1": 0.75, "pass@8": 0.75, "common": 1.0, "rare": 0.0, "pass@8, most": 0.76, "pass@8, least": 0.75}
    many = {"pass@1": 0.5, "pass@8": pass_at_k.largest(8), "common": 0.75, "rare": 0.25, "pass@8, least": 0.99}
    ends = {name: {"pass@1, least": 0.5, **(plain if name in ("RLOO", "GRPO") else many)} for name in pass_at_k.ARMS}
    ends["MaxRL"]["pass@8"] = 0.97
    assert all(check.held for check in pass_at_k.checks_of({"RLOO": 0.0}, ends))
    ends[arm][figure] = value
    assert [check.held for check in pass_at_k.checks_of({"RLOO": 0.0}, ends)] == [i != failing for i in range(6)]
    assert not pass_at_k.checks_of({"RLOO": 1e-9}, ends)[0].held


def test_pass_at_k_draws(finding: Finding, tmp_path: Path) -> None:
    save_figure(finding.draw, tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 5000


# reward-parts


def test_grpo_on_the_sum_does_not_see_the_second_part() -> None:
    one, both = (reward_parts.advantages_of(GRPO, group) for group in (reward_parts.ONE, reward_parts.BOTH))
    assert one == pytest.approx(both, abs=1e-3)
    one, both = (reward_parts.advantages_of(RLOO, group) for group in (reward_parts.ONE, reward_parts.BOTH))
    assert (one[3], both[3]) == pytest.approx((1, 2))


def test_gdpo_by_hand_beside_the_reference() -> None:
    spread = math.sqrt(1 / 3) + 1e-4
    both, reference = [-0.5, -0.5, -0.5, 1.5], [-1.0, 0.0, 0.0, 1.0]  # of both parts, whose deviation is 1/2 for four
    sums = [2 * value / 2 / (0.5 + 1e-4) for value in both] + [value / spread for value in reference]
    scale = math.sqrt(sum(value**2 for value in sums) / 8)
    assert reward_parts.advantages_of(GDPO, reward_parts.BOTH) == pytest.approx([v / scale for v in sums[:4]], abs=1e-6)


def test_orders_add_up_to_all_sequences() -> None:
    multisets = itertools.combinations_with_replacement(range(3), reward_parts.K)
    assert sum(map(reward_parts._orders, multisets)) == 3**reward_parts.K


@pytest.fixture(scope="module")
def parts() -> tuple[dict[str, int], dict[str, list[float]], dict[str, Any]]:
    ends = {name: {"right": 0.01, "brief": 0.99} for name in reward_parts.ARMS}
    ends["GDPO, 1 and 0.5"] = {"right": 0.99, "brief": 0.01}
    return {"GRPO": 10, "GDPO": 14}, {"GRPO": [1.5, 1.5], "GDPO": [1.4, 2.0]}, ends


@pytest.mark.parametrize(
    ("which", "name", "value", "failing"),
    [
        (1, "GRPO", [1.5, 1.6], 0),
        (1, "GDPO", [1.4, 1.5], 1),
        (0, "GDPO", 10, 2),
        (2, "GRPO on the sum", {"right": 0.5, "brief": 0.5}, 3),
        (2, "GDPO, 0.5 and 1", {"right": 0.5, "brief": 0.5}, 4),
    ],
)
def test_reward_parts_checks_fail_where_they_should(
    parts: tuple[Any, ...], which: int, name: str, value: Any, failing: int
) -> None:
    assert all(check.held for check in reward_parts.checks_of(*parts))
    changed = copy.deepcopy(parts)
    changed[which][name] = value
    assert [check.held for check in reward_parts.checks_of(*changed)] == [i != failing for i in range(5)]


@pytest.mark.slow
def test_reward_parts_holds(tmp_path: Path) -> None:
    finding = reward_parts.run(0)
    assert finding.held and len({tuple(row) for row in finding.rows}) == 1
    save_figure(finding.draw, tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 5000

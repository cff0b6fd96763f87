"""The reported score is that of the policy on the half of the answers that training never sees."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch

from runs import small_config
from wmrl_envs.errors import ConfigurationError, SandboxError
from wmrl_envs.evaluate import evaluate
from wmrl_envs.research.design_space import DesignSpace
from wmrl_envs.research.grading import Submission
from wmrl_envs.research.outcome import Outcome
from wmrl_envs.research.sandbox.replay import ReplaySandbox
from wmrl_envs.research.task import load_task
from wmrl_envs.train import Run


@pytest.fixture(scope="module")
def run() -> Iterator[Run]:
    run = Run(small_config())
    yield run
    run.close()


def test_untrained_agent_scores_what_its_prior_is_worth(run: Run) -> None:
    task = load_task("titanic")
    space, rewards = DesignSpace.of(task), ReplaySandbox().expected_report(task)
    members = np.array([space.choices(index) for index in range(space.size)])
    chances = np.exp(sum(logits[members[:, i]] for i, logits in enumerate(space.prior_logits)))
    expected = float(chances @ rewards / chances.sum())
    result = evaluate(run.agent, run.config, episodes=4000, seed=1)
    assert result.standard_error is not None
    assert abs(result.score - expected) < 4 * result.standard_error
    assert result.standard_error == pytest.approx(0.005, abs=0.004)
    assert 0.5 < result.valid < 0.7
    assert sum(result.statuses.values()) == result.episodes == 4000
    best = result.best["titanic"]
    [outcome] = ReplaySandbox().grade([Submission(task, best["code"], seed=0)])
    assert outcome is not None
    assert outcome.reward == pytest.approx(best["reward"], abs=0.1)


def test_repeats_and_leaves_the_generators_alone(run: Run) -> None:
    torch.manual_seed(5)
    state = torch.get_rng_state()
    first = evaluate(run.agent, run.config, episodes=20, seed=1)
    assert torch.equal(torch.get_rng_state(), state)
    assert evaluate(run.agent, run.config, episodes=20, seed=1) == first
    assert evaluate(run.agent, run.config, episodes=20, seed=2) != first


def test_single_episode_has_no_standard_error(run: Run) -> None:
    assert evaluate(run.agent, run.config, episodes=1, seed=1).standard_error is None


def test_refuses_no_episodes(run: Run) -> None:
    with pytest.raises(ConfigurationError, match="at least 1 episode, got 0"):
        evaluate(run.agent, run.config, episodes=0, seed=1)


class _Failing:
    """A sandbox whose harness fails for some submissions."""

    def __init__(self, share: float) -> None:
        self.share, self.rng, self.replay = share, np.random.default_rng(0), ReplaySandbox()

    def grade(self, submissions: list[Submission]) -> list[Outcome | None]:
        outcomes = self.replay.grade(submissions)
        return [None if self.rng.random() < self.share else outcome for outcome in outcomes]


def test_episodes_that_could_not_be_executed_are_left_out(run: Run) -> None:
    result = evaluate(run.agent, run.config, episodes=400, seed=1, sandbox=_Failing(0.5))
    assert 150 < result.episodes < 250
    whole = evaluate(run.agent, run.config, episodes=400, seed=1)
    assert result.standard_error is not None
    assert abs(result.score - whole.score) < 4 * result.standard_error
    with pytest.raises(SandboxError, match="none of 4 evaluation episodes"):
        evaluate(run.agent, run.config, episodes=4, seed=1, sandbox=_Failing(1.0))

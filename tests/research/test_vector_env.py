import json

import gymnasium as gym
import numpy as np
import pytest
from env_graders import HashGrader, InProcessGrader
from gymnasium.error import ResetNeeded
from gymnasium.utils.env_checker import data_equivalence
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from wmrl_envs.errors import CheckpointError, ConfigurationError, GradingError, UnknownTaskError
from wmrl_envs.research.batched import parse_autoreset_mode
from wmrl_envs.research.env import ResearchDesignEnv, ResearchEnv
from wmrl_envs.research.sandbox.replay import ReplaySandbox
from wmrl_envs.research.vector_env import ResearchDesignVectorEnv, ResearchVectorEnv

MODES = list(AutoresetMode)
CLASSES = {"text": (ResearchEnv, ResearchVectorEnv), "design": (ResearchDesignEnv, ResearchDesignVectorEnv)}
CODES = ["position = rng.random()", "1 / 0", "def f(:", "x = 1", "harness_fails = True", "position = rng.random() ** 2"]


def twins(kind, mode, n=6, grader=HashGrader, **kwargs):
    single, vector = CLASSES[kind]
    kwargs = {"tasks": ["titanic", "weather"], "report": True, **kwargs}
    sync = SyncVectorEnv([lambda: single(sandbox=grader(), **kwargs)] * n, autoreset_mode=mode)
    return sync, vector(n, sandbox=grader(), autoreset_mode=mode, **kwargs)


def actions_of(kind, envs, steps, seed=0):
    if kind == "text":
        rng = np.random.default_rng(seed)
        return [
            tuple(f"```python\n{rng.choice(CODES)}  # {step}\n```" for _ in range(envs.num_envs))
            for step in range(steps)
        ]
    envs.action_space.seed(seed)
    return [envs.action_space.sample() for _ in range(steps)]


def assert_equal(ours, theirs):
    assert len(ours) == len(theirs)
    for one, other in zip(ours, theirs, strict=True):
        assert data_equivalence(one, other, exact=True), f"{one}\n{other}"


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", CLASSES)
@pytest.mark.parametrize("grader", [HashGrader, InProcessGrader])
def test_equals_sync_vector_env(kind, mode, grader):
    sync, ours = twins(kind, mode, grader=grader)
    assert ours.metadata == sync.metadata
    assert ours.observation_space == sync.observation_space and ours.action_space == sync.action_space
    assert ours.single_observation_space == sync.single_observation_space
    assert_equal(ours.reset(seed=11), sync.reset(seed=11))
    for actions in actions_of(kind, ours, 17):
        step = ours.step(actions)
        assert_equal(step, sync.step(actions))
        assert step[0] in ours.observation_space
        if mode is AutoresetMode.DISABLED and step[2].all():
            assert_equal(ours.reset(), sync.reset())
    assert_equal(ours.reset(seed=[3, None, 5, 6, None, 8]), sync.reset(seed=[3, None, 5, 6, None, 8]))
    assert_equal(ours.reset(options={"task": "weather"}), sync.reset(options={"task": "weather"}))


@pytest.mark.parametrize("mode", MODES)
def test_equals_sync_vector_env_on_recorded_executions(mode):
    sandbox = ReplaySandbox()
    sync, ours = twins("design", mode, n=16, grader=lambda: sandbox, tasks="titanic", max_turns=2)
    assert_equal(ours.reset(seed=1), sync.reset(seed=1))
    statuses = set()
    for actions in actions_of("design", ours, 8):
        step = ours.step(actions)
        assert_equal(step, sync.step(actions))
        infos = step[4].get("final_info", step[4])["wmrl"]
        statuses |= {outcome.status for outcome in infos.get("outcome", []) if outcome is not None}
        if mode is AutoresetMode.DISABLED and step[2].all():
            assert_equal(ours.reset(), sync.reset())
    assert len(statuses) > 2


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", CLASSES)
def test_equals_sync_vector_env_out_of_step(kind, mode):
    """A partial reset puts the episodes out of step with each other: masks and mixed infos then matter."""
    sync, ours = twins(kind, mode, max_turns=3)
    assert_equal(ours.reset(seed=1), sync.reset(seed=1))
    rng = np.random.default_rng(0)
    done = np.zeros(6, dtype=np.bool_)
    for index, actions in enumerate(actions_of(kind, ours, 20)):
        if index in (1, 4, 5) or (mode is AutoresetMode.DISABLED and done.any()):
            mask = done | (rng.random(6) < 0.4)
            mask[index % 6] = True
            options, seed = {"reset_mask": mask}, None if index != 5 else 77
            assert_equal(ours.reset(options=options, seed=seed), sync.reset(options=dict(options), seed=seed))
            assert list(options) == ["reset_mask"]
        step = ours.step(actions)
        assert_equal(step, sync.step(actions))
        done = step[2]


@pytest.mark.parametrize("kind", CLASSES)
def test_registered_single_and_vector_ids_agree(kind):
    env_id = {"text": "wmrl/Research-v0", "design": "wmrl/ResearchDesign-v0"}[kind]
    kwargs = {"num_envs": 3, "sandbox": "env_graders:HashGrader", "tasks": "titanic"}
    ours = gym.make_vec(env_id, **kwargs)
    sync = gym.make_vec(env_id, vectorization_mode="sync", **kwargs)
    assert type(ours) is CLASSES[kind][1] and isinstance(sync, SyncVectorEnv)
    assert_equal(ours.reset(seed=2), sync.reset(seed=2))
    for actions in actions_of(kind, ours, 6):
        assert_equal(ours.step(actions), sync.step(actions))
    ours.close()
    sync.close()


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_episode_statistics_are_whole_across_autoreset(mode):
    """Every episode's return is its best turn and its length three turns, whatever happens between episodes."""
    envs = ResearchVectorEnv(2, sandbox=InProcessGrader(), autoreset_mode=mode, max_turns=3)
    envs = gym.wrappers.vector.RecordEpisodeStatistics(envs)
    envs.reset(seed=0)
    seen, turns = [], np.zeros(2, dtype=int)
    for _ in range(20):
        actions = tuple(f"```python\nposition = {0.25 * (turn + 1)}\n```" for turn in turns)
        _, _, terminated, _, infos = envs.step(actions)
        turns = infos["turn"] % 3
        if terminated.any():
            assert terminated.all()
            seen.append((infos["episode"]["r"].tolist(), infos["episode"]["l"].tolist()))
    assert len(seen) >= 5
    assert all(returns == [0.875, 0.875] and lengths == [3, 3] for returns, lengths in seen), seen


def test_groups_share_a_task_and_an_id():
    envs = ResearchDesignVectorEnv(
        12, ["titanic", "weather", "anes96"], group_size=4, sandbox=HashGrader(), max_turns=1
    )
    assert envs.group_size == 4 and envs.num_slots == 12
    tasks = set()
    seen = set()
    envs.reset(seed=0)
    for actions in actions_of("design", envs, 40):
        *_, infos = envs.step(actions)
        groups = infos["wmrl"]["group"].reshape(3, 4)
        assert (groups == groups[:, :1]).all() and len(np.unique(groups)) == 3
        np.testing.assert_array_equal(infos["wmrl"]["group"], envs.groups)
        task = infos["task"].reshape(3, 4)
        assert (task == task[:, :1]).all()
        tasks.add(tuple(task[:, 0]))
        seen.update(groups.ravel().tolist())
    assert len(tasks) > 5
    assert len(seen) == 3 * 21  # one step in two begins an episode


def test_members_of_a_group_are_executed_with_seeds_of_their_own():
    grader = InProcessGrader()
    envs = ResearchVectorEnv(4, group_size=4, sandbox=grader)
    envs.reset(seed=0)
    envs.step(("```python\nposition = rng.random()\n```",) * 4)
    assert len(grader.batches) == 1
    assert len({submission.seed for submission in grader.batches[0]}) == 4


def test_one_grade_call_a_step_and_none_for_the_dummy_step():
    grader = InProcessGrader()
    envs = ResearchVectorEnv(4, sandbox=grader, max_turns=2)
    envs.reset(seed=0)
    for _ in range(6):
        *_, infos = envs.step(("```python\nx = 1\n```",) * 4)
    assert [len(batch) for batch in grader.batches] == [4, 4, 4, 4]
    assert infos["turn"].tolist() == [0] * 4 and "outcome" not in infos["wmrl"]


def test_a_route_sees_slots_and_submissions():
    envs = ResearchVectorEnv(4, sandbox=InProcessGrader(), max_turns=2)
    calls = []

    def route(slots, submissions):
        calls.append(slots.tolist())
        return envs.grader.grade(submissions)

    envs.route = route
    envs.reset(seed=0)
    action = ("```python\nposition = 0.5\n```",) * 4
    envs.step(action)
    envs.reset(options={"reset_mask": np.array([True, False, False, True])})
    assert envs.step(action)[2].tolist() == [False, True, True, False]
    envs.step(action)
    assert calls == [[0, 1, 2, 3], [0, 1, 2, 3], [0, 3]]


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"num_envs": 10, "group_size": 4}, "group_size=4 does not divide num_envs=10"),
        ({"num_envs": 2, "group_size": 4}, "group_size=4 does not divide num_envs=2"),
        ({"num_envs": 0}, "num_envs must be a whole number of at least 1, got 0"),
        ({"group_size": 0}, "group_size must be"),
        ({"autoreset_mode": "samestop"}, "NextStep, SameStep, Disabled, got 'samestop'. Did you mean 'SameStep'"),
        ({"render_mode": "rgb_array"}, "render_mode"),
    ],
)
def test_arguments_that_cannot_work(kwargs, message):
    with pytest.raises(ConfigurationError, match=message):
        ResearchVectorEnv(**{"num_envs": 4, "sandbox": InProcessGrader(), **kwargs})


def test_autoreset_modes_have_names():
    for name in ("SameStep", "same_step", "SAME_STEP", AutoresetMode.SAME_STEP):
        assert parse_autoreset_mode(name) is AutoresetMode.SAME_STEP


@pytest.mark.parametrize(
    "mask", [[True] * 4, np.ones(4), np.ones(3, dtype=bool), np.zeros(4, dtype=bool), None], ids=str
)
def test_masks_that_do_not_fit(mask):
    envs = ResearchVectorEnv(4, sandbox=InProcessGrader(), autoreset_mode="Disabled")
    with pytest.raises(ConfigurationError, match=r"reset_mask.*shape \(4,\)"):
        envs.reset(options={"reset_mask": mask})


def test_a_mask_must_cover_whole_groups():
    envs = ResearchVectorEnv(6, group_size=3, sandbox=InProcessGrader(), autoreset_mode="Disabled")
    envs.reset(seed=0)
    before = envs.groups
    with pytest.raises(ConfigurationError, match=r"sub-environments 3 to 5 .*names \[4, 5\]"):
        envs.reset(options={"reset_mask": np.array([True, True, True, False, True, True])})
    np.testing.assert_array_equal(envs.groups, before)
    envs.reset(options={"reset_mask": np.array([False, False, False, True, True, True])})
    assert (envs.groups == before).tolist() == [True] * 3 + [False] * 3


def test_disabled_mode_waits_for_resets():
    envs = ResearchVectorEnv(2, sandbox=InProcessGrader(), autoreset_mode="Disabled", max_turns=1)
    with pytest.raises(ResetNeeded):
        envs.step(("", ""))
    envs.reset(seed=0)
    envs.step(("", ""))
    with pytest.raises(ResetNeeded, match=r"\[0, 1\] are over"):
        envs.step(("", ""))
    envs.reset(options={"reset_mask": np.array([True, False])})
    with pytest.raises(ResetNeeded, match=r"\[1\] are over"):
        envs.step(("", ""))


@pytest.mark.parametrize("actions", ["one string", ("a",), ("a", "b", "c"), ("a", 1)], ids=str)
def test_text_actions_that_do_not_fit(actions):
    envs = ResearchVectorEnv(2, sandbox=InProcessGrader())
    envs.reset(seed=0)
    with pytest.raises(ConfigurationError, match="2 replies|a string, the agent's whole reply"):
        envs.step(actions)


def test_an_unknown_task_and_wrong_seeds_change_nothing():
    envs = ResearchVectorEnv(2, sandbox=InProcessGrader())
    envs.reset(seed=0)
    before = envs.state_dict()
    with pytest.raises(UnknownTaskError):
        envs.reset(options={"task": "nothing"})
    with pytest.raises(ConfigurationError, match="2 of them, got a list of 3"):
        envs.reset(seed=[1, 2, 3])
    assert envs.state_dict() == before


def test_a_grader_that_returns_too_few_changes_nothing():
    class Short(HashGrader):
        broken = True

        def grade(self, submissions):
            return super().grade(submissions)[: -1 if self.broken else None]

    envs = ResearchVectorEnv(3, sandbox=Short(), max_turns=1)
    envs.reset(seed=0)
    before = envs.state_dict()
    with pytest.raises(GradingError, match="returned 2 outcomes for 3"):
        envs.step(("a", "b", "c"))
    assert envs.state_dict() == before
    envs.grader.broken = False
    assert envs.step(("a", "b", "c"))[2].all()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", CLASSES)
def test_state_is_complete_mid_episode(kind, mode):
    def make():
        return CLASSES[kind][1](
            4, ["titanic", "weather"], group_size=2, autoreset_mode=mode, sandbox=HashGrader(), max_turns=3, report=True
        )

    envs = make()
    envs.reset(seed=4)
    actions = actions_of(kind, envs, 24)

    def step(env, action):
        result = env.step(action)
        if mode is AutoresetMode.DISABLED and result[2].any():
            result = (*result, env.reset(options={"reset_mask": result[2]}))
        return result

    for at, action in enumerate(actions[:12]):
        if at == 2:
            envs.reset(options={"reset_mask": np.array([True, True, False, False])})
        other = make()
        state = json.loads(json.dumps(envs.state_dict()))
        assert state == envs.state_dict()
        other.load_state_dict(state)
        step(envs, action)
        step(other, action)
        for following in actions[12:18]:
            if at == 11:  # the long way once
                assert_equal(step(other, following), step(envs, following))
        assert other.state_dict() == envs.state_dict()


def test_a_state_of_another_shape_is_refused():
    state = ResearchVectorEnv(4, sandbox=HashGrader()).state_dict()
    with pytest.raises(CheckpointError, match="num_envs=4, this one has num_envs=2"):
        ResearchVectorEnv(2, sandbox=HashGrader()).load_state_dict(state)


def test_tasks_with_different_design_spaces_do_not_mix():
    with pytest.raises(ConfigurationError, match="'titanic' and 'names' have different design spaces"):
        ResearchDesignVectorEnv(2, ["titanic", "weather", "names"], sandbox=HashGrader())


def test_blocks_make_larger_choices():
    plain = ResearchDesignVectorEnv(2, sandbox=HashGrader())
    d = len(plain.design_space.nvec)
    envs = ResearchDesignVectorEnv(2, sandbox=HashGrader(), blocks=[[0, 1, 2], [*range(3, d)]])
    assert envs.single_action_space.nvec.prod() == plain.single_action_space.nvec.prod()
    assert len(envs.single_action_space.nvec) == 2
    envs.reset(seed=0)
    plain.reset(seed=0)
    choices = np.array([[1] * d, [0] * d])
    index = [envs.design_space.choices(plain.design_space.index(row)) for row in choices]
    assert_equal(envs.step(np.stack(index)), plain.step(choices))


def test_returned_data_is_the_callers():
    envs = ResearchDesignVectorEnv(3, sandbox=HashGrader())
    first, infos = envs.reset(seed=0)
    kept = first.copy()
    infos["wmrl"]["group"][:] = 0
    infos["turn"][:] = 9
    first[:] = 7
    assert (envs.groups != 0).all()
    second = envs.reset(seed=0)
    np.testing.assert_array_equal(second[0], kept)
    assert second[1]["turn"].tolist() == [0, 0, 0]


def test_shared_memory_is_refused_by_name():
    """Gymnasium's shared memory would copy text through an alphabet and lose what is outside it."""
    with pytest.raises(ValueError, match="shared_memory"):
        gym.vector.AsyncVectorEnv([lambda: ResearchEnv(sandbox=InProcessGrader())], shared_memory=True)


def test_works_in_another_process_without_shared_memory():
    envs = gym.vector.AsyncVectorEnv([lambda: ResearchEnv(sandbox=InProcessGrader())] * 2, shared_memory=False)
    envs.reset(seed=0)
    observations, *_ = envs.step(("```python\nposition = 0.5\n```", "naïve 漢字"))
    assert "position 0.5" in observations["feedback"][0]
    envs.close()

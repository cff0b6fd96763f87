"""One correction per run and process."""

import gc
import pickle
import weakref

import gymnasium as gym
import numpy as np
import pytest
from test_labels import Reach, closer
from toy import Executor, Guesser, batched, fresh_run, reply, single

from wmrl_envs.errors import ConfigurationError
from wmrl_envs.research.env import ResearchEnv
from wmrl_envs.wrappers import CorrectionWrapper, WorldModelWrapper


def test_equal_id_settings_and_run_share(task):
    run, model = fresh_run(), Guesser()
    one, two = (single(task, run=run, world_model=model) for _ in range(2))
    assert one.correction is two.correction and one.ledger is two.ledger and one.world_model is model
    one.reset(options={"anchor": True})
    for _ in range(4):
        one.step(reply(0.5))
    assert two.correction.debiaser.num_pairs == 4 and two.ledger.executions == 4
    for other in (
        single(task, run=fresh_run(), world_model=model),
        single(task, run=run, world_model=Guesser()),
        single(task, run=run, world_model=model, anchor_fraction=0.2),
        single(task, run=run, world_model=model, scheme="paper"),
        single(task, run=run, world_model=model, seed=1),
        single(task, run=run, world_model=model, anchor_feedback="predicted"),
    ):
        assert other.correction is not one.correction


def test_other_tasks_are_another_correction(task):
    run, model = fresh_run(), Guesser()

    def make(**kwargs):
        env = gym.make("wmrl/Research-v0", tasks=str(task.folder), sandbox="toy:Executor", **kwargs)
        return CorrectionWrapper(WorldModelWrapper(env, model, run=run), run=run)

    base = make()
    assert make().correction is base.correction and make(report=True).correction is base.correction
    assert make(max_turns=2).correction is not base.correction


def test_state_ends_with_its_last_wrapper(task):
    run, model = fresh_run(), Guesser()
    env = single(task, run=run, world_model=model)
    state = weakref.ref(env.correction)
    other = single(task, run=run, world_model=model)
    del env
    gc.collect()
    assert state() is other.correction
    del other
    gc.collect()
    assert state() is None


def test_eight_monitored_environments_are_one_correction():
    """stable-baselines3's make_vec_env puts Monitor inside: each environment has one around it."""
    env_util = pytest.importorskip("stable_baselines3.common.env_util")
    from stable_baselines3.common.monitor import Monitor

    run = fresh_run()

    def make():
        env = WorldModelWrapper(Reach(), closer, withhold=["success"], run=run)
        return Monitor(CorrectionWrapper(env, anchor_fraction=0.5, run=run))

    envs = env_util.make_vec_env(make, n_envs=8, seed=0)
    assert len({id(correction) for correction in envs.get_attr("correction")}) == 1
    envs.reset()
    episodes = []
    for _ in range(80):
        _, rewards, dones, infos = envs.step(np.ones((8, 1)))
        episodes += [info for info in infos if "episode" in info]
    assert len(episodes) == 160
    for info in episodes:
        assert info["episode"]["r"] == pytest.approx(info["wmrl"]["corrected_return"], abs=1e-5)
    (correction, *_) = envs.get_attr("correction")
    assert 0.3 < correction.drawn[0] / correction.drawn[1] < 0.7
    assert correction.debiaser.num_pairs == correction.scalar.num_anchors > 40


@pytest.mark.parametrize("make", [single, lambda task: batched(task, 2)])
def test_wrappers_do_not_travel(task, make):
    env = make(task)
    for layer in (env, env.env):
        with pytest.raises(ConfigurationError, match="vector_entry_point"):
            pickle.dumps(layer)


@pytest.mark.filterwarnings("ignore:.*ERROR:UserWarning")
def test_other_processes_are_refused(task):
    """The message reaches the caller through AsyncVectorEnv's pipe."""

    def make():
        env = WorldModelWrapper(ResearchEnv(task, sandbox=Executor()), Guesser(), run="elsewhere")
        return CorrectionWrapper(env, run="elsewhere")

    envs = gym.vector.AsyncVectorEnv([make] * 2, shared_memory=False)
    with pytest.raises(ConfigurationError, match="vectorization_mode='vector_entry_point'"):
        envs.reset()
    envs.close(terminate=True)


def test_workers_of_stable_baselines3_are_refused(capfd):
    """Its workers die of any error; the message is in the worker's traceback."""
    vec_env = pytest.importorskip("stable_baselines3.common.vec_env")

    def make():
        env = WorldModelWrapper(Reach(), closer, withhold=["success"], run="elsewhere")
        return CorrectionWrapper(env, run="elsewhere")

    envs = vec_env.SubprocVecEnv([make], start_method="fork")
    with pytest.raises((EOFError, ConnectionError)):
        envs.reset()
    envs.processes[0].join()
    assert "vectorization_mode='vector_entry_point'" in capfd.readouterr().err


def test_forked_copies_are_refused(task):
    import os

    env = single(task)
    env.reset()
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            env.step(reply(0.5))
            os.write(write, b"stepped")
        except ConfigurationError as error:
            os.write(write, str(error).encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert b"vector_entry_point" in os.read(read, 10_000)
    env.step(reply(0.5))

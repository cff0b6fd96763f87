"""Every task of Meta-World has an expert, and an instruction of its own."""

from __future__ import annotations

from metaworld.env_dict import ALL_V3_ENVIRONMENTS, MT10_V3
from metaworld.policies import ENV_POLICY_MAP

from wmrl_envs.robotics.envs import MetaWorldEnv
from wmrl_envs.robotics.instructions import META_WORLD_INSTRUCTIONS, MT10


def test_all_tasks_have_an_instruction_and_an_expert() -> None:
    names = {name.removesuffix("-v3") for name in ALL_V3_ENVIRONMENTS}
    assert len(names) == 50
    assert set(META_WORLD_INSTRUCTIONS) == names
    assert {name.removesuffix("-v3") for name in ENV_POLICY_MAP} == names


def test_instructions_tell_tasks_apart_and_fit_the_observation() -> None:
    assert len(set(META_WORLD_INSTRUCTIONS.values())) == 50
    env = MetaWorldEnv()
    for instruction in META_WORLD_INSTRUCTIONS.values():
        assert env.observation_space["instruction"].contains(instruction)
        assert instruction == instruction.strip().lower() and len(instruction.split()) >= 3


def test_mt10_is_meta_worlds() -> None:
    assert {f"{name}-v3" for name in MT10} == set(MT10_V3)

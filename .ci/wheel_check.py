"""Checks an installed wheel from outside the checkout.

Names claimed, import time and weight, every bundled task, recordings.
"""

import importlib.metadata
import sys
import time

start = time.perf_counter()
import wmrl_envs  # noqa: E402, F401

took = time.perf_counter() - start
for heavy in ("torch", "mujoco", "cv2"):
    assert heavy not in sys.modules, f"import wmrl_envs must not import {heavy}"
print(f"import wmrl_envs: {took:.2f} s")

import gymnasium as gym  # noqa: E402
import numpy as np  # noqa: E402

from wmrl_envs.research.task import bundled_tasks  # noqa: E402

files = importlib.metadata.files("wmrl-envs")
assert files is not None
names = {file.parts[0] for file in files if file.suffix == ".py"}
assert names == {"wmrl_envs"}, f"the wheel claims the top-level names {sorted(names)}"
assert any(file.name == "py.typed" for file in files)
assert {"page.html", "app.js", "style.css"} <= {file.name for file in files if file.parent.name == "assets"}

for task in bundled_tasks():
    for sandbox in ("replay", "process"):
        env = gym.make("wmrl/ResearchDesign-v0", tasks=task, sandbox=sandbox)
        env.reset(seed=0)
        action = env.action_space.sample()
        if sandbox == "replay":
            table = env.unwrapped.grader.table(env.unwrapped.tasks[0])
            action = env.unwrapped.design_space.choices(int(np.flatnonzero(table.draws)[0]))
        *_, info = env.step(action)
        assert not info["wmrl"]["ungraded"], (task, sandbox)
        env.close()
print(f"{len(bundled_tasks())} bundled tasks reset and step, executed and replayed")

env = gym.make("wmrl_envs:wmrl/ResearchDesignWMRL-v0", sandbox="replay")
env.reset(seed=0)
for _ in range(4):
    env.step(env.action_space.sample())
env.close()

from wmrl_envs.research.grading import Submission  # noqa: E402
from wmrl_envs.research.task import load_task  # noqa: E402
from wmrl_envs.world_models.prompting import BUILTIN_TEMPLATES, PromptTemplates  # noqa: E402

for templates in BUILTIN_TEMPLATES:
    assert PromptTemplates.load(templates).conversation(Submission(load_task("titanic"), "print(1)"))
print(f"the wheel holds the prompt templates {', '.join(BUILTIN_TEMPLATES)}")

from wmrl_envs.errors import MissingExtraError  # noqa: E402

try:
    gym.make("wmrl/MetaWorld-v0").reset()
except MissingExtraError as error:
    assert "wmrl-envs[robotics]" in str(error)
    print("without the extra, the robots say how to install it")

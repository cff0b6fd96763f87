"""The trainer in two real processes: one environment, groups that lie in both."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
from program_model import program_model, programs, reply_to
from transformers import AutoTokenizer

from wmrl_envs.correction import standardise
from wmrl_envs.research.grading import Submission
from wmrl_envs.research.sandbox.replay import ReplaySandbox
from wmrl_envs.research.task import load_task


def test_two_processes_play_in_one_environment(tmp_path):
    model = program_model(tmp_path / "model")
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    script = Path(__file__).with_name("distributed_run.py")
    finished = subprocess.run(
        [*launch, str(script), str(tmp_path)], capture_output=True, text=True, timeout=240, env={**os.environ}
    )
    assert finished.returncode == 0, finished.stderr[-4000:]
    first, second = (json.loads((tmp_path / f"rank-{rank}.json").read_text()) for rank in (0, 1))
    assert first["weights"] == second["weights"]
    assert first["executions"] == 2 * 2 * 12 and second["executions"] is None
    assert (tmp_path / "run" / "checkpoint-2" / "wmrl_state.json").is_file()
    outcomes = ReplaySandbox().grade([Submission(load_task("titanic"), program) for program in programs()])
    tokens = AutoTokenizer.from_pretrained(model).convert_tokens_to_ids([reply_to(program) for program in programs()])
    worth = dict(zip(tokens, (outcome.reward for outcome in outcomes), strict=True))
    for one, other in zip(first["played"], second["played"], strict=True):
        rewards = [max(worth.get(token, 0.0) for token in ids) for ids in one["ids"] + other["ids"]]
        expected = standardise(rewards, np.repeat(np.arange(3), 4))
        np.testing.assert_allclose(one["advantages"] + other["advantages"], expected, atol=1e-12)
        assert np.any(expected)

"""Two steps of the trainer in one of several processes; writes what it played and ended with."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from program_model import SYSTEM
from trl import GRPOConfig

from wmrl_envs.agents import ResearchGRPOTrainer


class Watched(ResearchGRPOTrainer):
    """Remembers what this process played."""

    def _play(self, prompts, trainer):
        played = super()._play(prompts, trainer)
        self.played = [*getattr(self, "played", []), {"ids": played["completion_ids"], "advantages": self._advantages}]
        return played


def main() -> None:
    folder = Path(sys.argv[1])
    args = GRPOConfig(
        str(folder / "run"),
        max_steps=2,
        num_generations=4,
        per_device_train_batch_size=6,  # the middle group lies in both processes
        max_completion_length=200,
        learning_rate=3e-3,
        save_steps=1,
        report_to=[],
        use_cpu=True,
        bf16=False,
        activation_checkpointing=False,
        disable_tqdm=True,
    )
    trainer = Watched(
        folder / "model",
        args=args,
        sandbox="replay",
        scheme="real",
        max_turns=2,
        max_reply_tokens=3,
        max_feedback_tokens=64,
        system=SYSTEM,
        env_kwargs={"isolation": "auto"},
    )
    trainer.train()
    weights = {name: value.double().sum().item() for name, value in trainer.model.named_parameters()}
    executions = None if trainer.env is None else trainer.env.ledger.executions
    result = {"played": trainer.played, "weights": weights, "executions": executions}
    (folder / f"rank-{os.environ['RANK']}.json").write_text(json.dumps(result))
    trainer.close()


if __name__ == "__main__":
    main()

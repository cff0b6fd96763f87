"""A small vision-language-action policy that trains on a CPU in minutes.

- ``SmallVLA`` - image, proprioception and instruction to a Gaussian over an action or a chunk of actions.
- ``imitate`` - fits it to demonstrations.
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional as F

from wmrl_envs.errors import CheckpointError, ConfigurationError
from wmrl_envs.files import replacing, write_json
from wmrl_envs.robotics.demonstrations import Rollout

__all__ = ["SmallVLA", "WordEncoder", "imitate"]

_BUCKETS = 512


class WordEncoder(nn.Module):
    """The mean of learned vectors of a sentence's words; words are told apart by a hash, so that none is unknown."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.bag = nn.EmbeddingBag(_BUCKETS, width, mode="mean")

    def forward(self, instructions: Sequence[str]) -> Tensor:
        """Return [n, width]."""
        words = [[zlib.crc32(word.encode()) % _BUCKETS for word in text.lower().split()] for text in instructions]
        for text, found in zip(instructions, words, strict=True):
            if not found:
                raise ConfigurationError(f"the instruction {text!r} has no words; say what the robot is to do")
        starts = np.cumsum([0, *(len(found) for found in words[:-1])])
        device = self.bag.weight.device
        flat = torch.tensor([word for found in words for word in found], device=device)
        encoded: Tensor = self.bag(flat, torch.as_tensor(starts, device=device))
        return encoded


def convolutions(channels: int, widths: Sequence[int] = (16, 32, 64, 64)) -> nn.Sequential:
    """Return an image encoder that halves the resolution once per width."""
    layers: list[nn.Module] = []
    for width in widths:
        layers += [nn.Conv2d(channels, width, 3, stride=2, padding=1), nn.ReLU()]
        channels = width
    return nn.Sequential(*layers, nn.Flatten())


class SmallVLA(nn.Module):
    """Image encoder, proprioception and words; an action head over their features.

    The action's distribution is a Gaussian of fixed standard deviation around the head's mean. Its samples are not
    clipped, since the environment clips: the log-probability is the Gaussian's.
    """

    def __init__(
        self,
        *,
        image_size: int = 64,
        state_size: int = 4,
        action_shape: Sequence[int] = (4,),
        width: int = 128,
        std: float = 0.2,
    ) -> None:
        """Build the network with random weights.

        Args:
            image_size: Height and width of the images in pixels, a multiple of 16.
            state_size: Length of the proprioception.
            action_shape: Of one action, or [chunk, size].
            width: Of each part's features; the head is twice as wide.
            std: Standard deviation of sampled actions, above 0, in units of the action (its range is [-1, 1]).

        Raises:
            ConfigurationError: If a size cannot work.
        """
        super().__init__()
        if image_size < 16 or image_size % 16:
            raise ConfigurationError(f"image_size must be a multiple of 16, got {image_size!r}")
        if not std > 0.0 or not math.isfinite(std):
            raise ConfigurationError(f"std must be a finite number above 0, got {std!r}")
        self.config = {
            "image_size": image_size,
            "state_size": state_size,
            "action_shape": list(action_shape),
            "width": width,
            "std": std,
        }
        self.action_shape, self.std = tuple(action_shape), std
        self.image = nn.Sequential(
            convolutions(3), nn.Linear(64 * (image_size // 16) ** 2, width), nn.LayerNorm(width), nn.ReLU()
        )
        self.state = nn.Sequential(nn.Linear(state_size, width), nn.ReLU())
        self.words = WordEncoder(width)
        self.head = nn.Sequential(
            nn.Linear(3 * width, 2 * width),
            nn.ReLU(),
            nn.Linear(2 * width, 2 * width),
            nn.ReLU(),
            nn.Linear(2 * width, math.prod(self.action_shape)),
        )

    def features(self, observations: Mapping[str, Any]) -> Tensor:
        """Return what the head sees, [n, 3 * width].

        Args:
            observations: ``image`` uint8 [n, H, W, 3], ``state`` [n, d], ``instruction`` n sentences.

        Raises:
            ConfigurationError: If a key is missing or has another shape or dtype.
        """
        images, states = self._checked(observations)
        device = next(self.parameters()).device
        pixels = torch.as_tensor(images, device=device).permute(0, 3, 1, 2).float() / 255.0 - 0.5
        parts = [
            self.image(pixels),
            self.state(torch.as_tensor(states, dtype=torch.float32, device=device)),
            self.words(observations["instruction"]),
        ]
        return torch.cat(parts, dim=1)

    def mean(self, features: Tensor) -> Tensor:
        """Return the mean action, [n, *action_shape], from features."""
        flat: Tensor = self.head(features)
        return flat.view(len(flat), *self.action_shape)

    def log_density(self, features: Tensor, actions: Tensor) -> Tensor:
        """Return the log-density of actions [n, *action_shape] given features, [n]."""
        distance = ((actions - self.mean(features)) / self.std).flatten(1)
        return -0.5 * distance.square().sum(1) - distance.shape[1] * math.log(self.std * math.sqrt(2.0 * math.pi))

    def log_prob(self, observations: Mapping[str, Any], actions: NDArray[np.float32] | Tensor) -> Tensor:
        """Return the log-density of actions [n, *action_shape] in some observations, [n].

        Raises:
            ConfigurationError: If an observation or the actions do not fit.
        """
        given = torch.as_tensor(actions, dtype=torch.float32, device=next(self.parameters()).device)
        expected = (len(observations["instruction"]), *self.action_shape)
        if given.shape != expected:
            raise ConfigurationError(f"actions must be {list(expected)}, got {list(given.shape)}")
        return self.log_density(self.features(observations), given)

    @torch.no_grad()
    def act(
        self,
        observations: Mapping[str, Any],
        *,
        deterministic: bool = False,
        generator: np.random.Generator | None = None,
    ) -> NDArray[np.float32]:
        """Return an action in each observation, float32 [n, *action_shape]; sampled ones need a generator.

        Raises:
            ConfigurationError: If an observation does not fit, or a sample has no generator.
        """
        means = self.mean(self.features(observations)).cpu().numpy()
        return means if deterministic else self.sample(means, generator)

    def reset(self, slots: Iterable[int] | None = None) -> None:
        """Do nothing: each action depends on the observation alone."""

    def sample(self, means: NDArray[np.float32], generator: np.random.Generator | None) -> NDArray[np.float32]:
        """Return actions drawn around their means.

        Raises:
            ConfigurationError: If there is no generator.
        """
        if generator is None:
            raise ConfigurationError("sampled actions need a generator: numpy.random.default_rng(seed)")
        return np.asarray(means + self.std * generator.standard_normal(means.shape), np.float32)

    def save(self, folder: Path) -> None:
        """Write weights and settings into a folder."""
        folder.mkdir(parents=True, exist_ok=True)
        with replacing(folder / "policy.safetensors") as temporary:
            save_file(self.state_dict(), temporary)
        write_json(folder / "policy.json", self.config)

    @classmethod
    def load(cls, folder: Path) -> SmallVLA:
        """Return the policy that ``save`` left in a folder.

        Raises:
            CheckpointError: If it cannot be read.
        """
        try:
            policy = cls(**json.loads((folder / "policy.json").read_text(encoding="utf-8")))
            policy.load_state_dict(load_file(folder / "policy.safetensors"))
        except Exception as error:
            raise CheckpointError(f"{folder} holds no small policy that can be read: {error}") from error
        return policy

    def _checked(self, observations: Mapping[str, Any]) -> tuple[NDArray[np.uint8], NDArray[Any]]:
        missing = [key for key in ("image", "state", "instruction") if key not in observations]
        if missing:
            raise ConfigurationError(
                f"the observations lack {missing}, they have {sorted(observations)}; the policy needs image, state and "
                "instruction"
            )
        images, states = np.asarray(observations["image"]), np.asarray(observations["state"])
        size, n = self.config["image_size"], len(observations["instruction"])
        if images.dtype != np.uint8 or images.shape != (n, size, size, 3):
            raise ConfigurationError(
                f"image must be uint8 [{n}, {size}, {size}, 3], one for each instruction, got {images.dtype} "
                f"{list(images.shape)}"
            )
        if states.shape != (n, self.config["state_size"]):
            raise ConfigurationError(f"state must be [{n}, {self.config['state_size']}], got {list(states.shape)}")
        return images, states


def imitate(
    policy: SmallVLA,
    rollouts: Sequence[Rollout],
    *,
    steps: int = 500,
    batch_size: int = 64,
    learning_rate: float = 1e-3,
    shift: int = 2,
    seed: int = 0,
    on_step: Callable[[int, float], None] = lambda step, loss: None,
) -> float:
    """Fit a policy to the expert's actions in the states before success, by least squares.

    Args:
        policy: Is trained in place.
        rollouts: Demonstrations; disturbed ones are welcome, their labels are the expert's too.
        steps: Optimiser steps, above 0.
        batch_size: Decisions per step.
        learning_rate: Of Adam; falls to 0 along a half cosine.
        shift: Images are moved at random by up to so many pixels, which a few demonstrations need.
        seed: Of batches and shifts.
        on_step: Called with the number of steps done and the loss.

    Returns:
        Mean loss over the last tenth of the steps.

    Raises:
        ConfigurationError: If there is no decision to learn from, actions have another shape than the policy's, or
            ``steps`` is below 1.
    """
    rows = [(rollout, t) for rollout in rollouts for t in np.flatnonzero(~rollout.solved[:-1]).tolist()]
    if not rows or steps < 1:
        raise ConfigurationError(f"{len(rows)} demonstrated decisions and {steps} steps; both must be above 0")
    images = np.stack([rollout.frames[t] for rollout, t in rows])
    states = np.stack([rollout.states[t] for rollout, t in rows])
    actions = torch.tensor(np.stack([rollout.actions[t] for rollout, t in rows]))
    if actions.shape[1:] != policy.action_shape:
        raise ConfigurationError(
            f"demonstrated actions are {list(actions.shape[1:])}, the policy's {list(policy.action_shape)}: give it "
            f"action_shape={tuple(actions.shape[1:])}"
        )
    instructions = [rollout.instruction for rollout, _ in rows]
    generator = np.random.default_rng(seed)
    optimizer = torch.optim.Adam(policy.parameters(), learning_rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    losses = []
    for step in range(steps):
        chosen = generator.integers(len(rows), size=batch_size)
        observations = {
            "image": shifted(images[chosen], shift, generator),
            "state": states[chosen],
            "instruction": [instructions[i] for i in chosen],
        }
        loss = F.mse_loss(policy.mean(policy.features(observations)), actions[chosen])
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
        on_step(step + 1, losses[-1])
    return float(np.mean(losses[-max(steps // 10, 1) :]))


def shifted(images: NDArray[np.uint8], most: int, generator: np.random.Generator) -> NDArray[np.uint8]:
    """Return images [n, H, W, C] moved by up to ``most`` pixels each way, their borders repeated."""
    if most == 0:
        return images
    padded = np.pad(images, ((0, 0), (most, most), (most, most), (0, 0)), mode="edge")
    height, width = images.shape[1:3]
    offsets = generator.integers(2 * most + 1, size=(len(images), 2))
    return np.stack([padded[i, y : y + height, x : x + width] for i, (y, x) in enumerate(offsets)])

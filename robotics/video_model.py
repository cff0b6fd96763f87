"""The embedded progress model: a small network that scores the frames of a rollout, trained from demonstrations.

It is trained as Robometer is (arXiv 2603.02115): categorical progress on expert rollouts, success on every frame, and
preference between two rollouts of one task, failures included.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional as F

from wmrl_envs.errors import ConfigurationError, ProgressModelError
from wmrl_envs.files import replacing, write_json
from wmrl_envs.robotics.demonstrations import Rollout
from wmrl_envs.robotics.policy import WordEncoder, convolutions, shifted
from wmrl_envs.robotics.progress import Progress, Video, check_videos, spaced_frames

__all__ = ["VideoNetwork", "VideoProgressModel", "train_video_model"]

BINS = 10
_FRAMES = 8
"""Frames of a rollout that preference compares."""
_REPLAYED = 512
"""Frames of the training data that are kept."""
_ADAPT_STEPS, _ADAPT_BATCH, _ADAPT_RATE = 150, 16, 1e-3
"""Chosen on rollouts of imitating policies, as the correlation with the label within groups of one initial state."""


class VideoNetwork(nn.Module):
    """Reads a frame beside the rollout's first one, and the instruction."""

    def __init__(self, *, image_size: int = 64, width: int = 128) -> None:
        """Build the network with random weights.

        Args:
            image_size: Height and width of the images in pixels, a multiple of 16.
            width: Of the features.

        Raises:
            ConfigurationError: If the size is no multiple of 16.
        """
        super().__init__()
        if image_size < 16 or image_size % 16:
            raise ConfigurationError(f"image_size must be a multiple of 16, got {image_size!r}")
        self.config = {"image_size": image_size, "width": width}
        self.image = nn.Sequential(convolutions(6), nn.Linear(64 * (image_size // 16) ** 2, width), nn.ReLU())
        self.words = WordEncoder(width)
        self.trunk = nn.Sequential(nn.Linear(2 * width, width), nn.ReLU())
        self.progress = nn.Linear(width, BINS)
        self.success = nn.Linear(width, 1)
        self.preference = nn.Linear(width, 1)
        self.typical: Tensor
        self.spread: Tensor
        self.register_buffer("typical", torch.zeros(width))
        self.register_buffer("spread", torch.ones(width))

    def forward(self, frames: NDArray[np.uint8], first: NDArray[np.uint8], instructions: Sequence[str]) -> Tensor:
        """Return the features of frames uint8 [n, H, W, 3] beside their rollouts' first frames, [n, width]."""
        device = next(self.parameters()).device
        pixels = torch.as_tensor(np.concatenate([frames, first], axis=3), device=device)
        seen = self.image(pixels.permute(0, 3, 1, 2).float() / 255.0 - 0.5)
        features: Tensor = self.trunk(torch.cat([seen, self.words(instructions)], dim=1))
        return features


@dataclass(frozen=True, eq=False, slots=True)
class Replay:
    """Frames of the training data that a model which goes on learning is reminded of."""

    frames: NDArray[np.uint8]
    """[n, H, W, 3]"""
    first: NDArray[np.uint8]
    """[n, H, W, 3] the first frames of their rollouts."""
    instructions: list[str]
    """n sentences."""
    solved: NDArray[np.bool_]
    """[n] whether the task had been solved by then."""


class VideoProgressModel:
    """A progress model around a ``VideoNetwork``.

    Attributes:
        network: The trained network.
        replay: What ``adapt`` is reminded of.
    """

    def __init__(self, network: VideoNetwork, replay: Replay, *, batch_size: int = 256) -> None:
        """Score with a network.

        Args:
            network: The network; put into evaluation mode.
            replay: Part of what it was trained on.
            batch_size: Frames at once.
        """
        if batch_size < 1:
            raise ConfigurationError(f"batch_size must be at least 1, got {batch_size!r}")
        self.network, self.replay, self._batch_size = network.eval(), replay, batch_size
        self._trained = {name: tensor.clone() for name, tensor in network.state_dict().items()}

    def score(self, videos: Sequence[Video], instructions: Sequence[str]) -> list[Progress | None]:
        """Score every frame of n videos.

        Raises:
            ConfigurationError: If a video is of another size than the network's.
        """
        network = self.network
        features = self.features(videos, instructions)
        with torch.no_grad():
            return [
                Progress(
                    (network.progress(rows).softmax(1) @ torch.linspace(0.0, 1.0, BINS)).numpy().clip(0.0, 1.0),
                    network.success(rows)[:, 0].sigmoid().numpy(),
                    ((ending(rows) - network.typical) / network.spread).numpy(),
                )
                for rows in features
            ]

    @torch.no_grad()
    def features(self, videos: Sequence[Video], instructions: Sequence[str]) -> list[Tensor]:
        """Return the features of every frame of n videos, each float32 [T, width]."""
        check_videos(videos, instructions)
        size = self.network.config["image_size"]
        for index, video in enumerate(videos):
            if video.shape[1:3] != (size, size):
                raise ConfigurationError(
                    f"video {index} has frames of {video.shape[1]} x {video.shape[2]} pixels, the model reads {size} x "
                    f"{size}; resize it (wmrl_envs.robotics.video.resize)"
                )
        if not videos:
            return []
        frames = np.concatenate(videos)
        owner = np.repeat(np.arange(len(videos)), [len(video) for video in videos])
        first = [video[0] for video in videos]
        found = []
        for start in range(0, len(frames), self._batch_size):
            rows = owner[start : start + self._batch_size]
            found.append(
                self.network(
                    frames[start : start + self._batch_size],
                    np.stack([first[row] for row in rows]),
                    [instructions[row] for row in rows],
                )
            )
        return list(torch.split(torch.cat(found), [len(video) for video in videos]))

    def adapt(self, videos: Sequence[Video], instructions: Sequence[str], labels: Sequence[float]) -> None:
        """Learn from labelled rollouts, anew from the weights that the demonstrations gave.

        The mean success logit of a video's last three frames is fitted to its label, and the success of frames of the
        training data beside it, so that they are not forgotten. Equal arguments give equal weights.

        Args:
            videos: n rollouts, all of one length; with n = 0 the weights are what they were.
            instructions: n sentences.
            labels: n numbers in [0, 1], whether each was solved.
        """
        check_videos(videos, instructions)
        network, generator = self.network, np.random.default_rng(len(videos))
        network.load_state_dict(self._trained)
        if not videos:
            return
        optimizer = torch.optim.Adam(network.parameters(), _ADAPT_RATE)
        shown = np.stack([np.stack([video[0], *video[-3:]]) for video in videos])
        wanted = torch.tensor(labels, dtype=torch.float32).clamp(0.0, 1.0)
        for _ in range(_ADAPT_STEPS):
            chosen = generator.integers(len(shown), size=_ADAPT_BATCH)
            loss = _label_loss(network, shown[chosen], [instructions[i] for i in chosen], wanted[chosen], generator)
            loss = loss + _replay_loss(network, self.replay, 2 * _ADAPT_BATCH, generator)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()

    def save(self, folder: Path) -> None:
        """Write weights, settings and the replay into a folder."""
        folder.mkdir(parents=True, exist_ok=True)
        with replacing(folder / "progress.safetensors") as temporary:
            save_file(self.network.state_dict(), temporary)
        with replacing(folder / "replay.npz") as temporary:
            replay = self.replay
            np.savez_compressed(
                temporary,
                frames=replay.frames,
                first=replay.first,
                instructions=np.array(replay.instructions),
                solved=replay.solved,
            )
        write_json(folder / "progress.json", self.network.config)

    @classmethod
    def load(cls, folder: Path, **kwargs: Any) -> VideoProgressModel:
        """Return the model that ``save`` left in a folder.

        Raises:
            ProgressModelError: If it cannot be read.
        """
        try:
            network = VideoNetwork(**json.loads((folder / "progress.json").read_text(encoding="utf-8")))
            network.load_state_dict(load_file(folder / "progress.safetensors"))
            with np.load(folder / "replay.npz") as saved:
                names = [str(name) for name in saved["instructions"]]
                replay = Replay(saved["frames"], saved["first"], names, saved["solved"])
        except Exception as error:
            raise ProgressModelError(
                f"{folder} holds no video progress model that can be read: {error}; `wmrl progress train` makes one"
            ) from error
        return cls(network, replay, **kwargs)


def train_video_model(
    rollouts: Sequence[Rollout],
    *,
    steps: int = 600,
    batch_size: int = 64,
    learning_rate: float = 1e-3,
    preference: bool = True,
    shift: int = 2,
    seed: int = 0,
    on_step: Callable[[int, float], None] = lambda step, loss: None,
) -> VideoProgressModel:
    """Train the embedded progress model.

    Args:
        rollouts: Experts' (progress) and others, failures included (success, preference).
        steps: Optimiser steps, above 0.
        batch_size: Frames per step for progress and success; an eighth as many pairs of rollouts.
        learning_rate: Of Adam; falls to 0 along a half cosine.
        preference: Whether pairs of a success and a failure of one task are compared; without pairs it makes no
            difference.
        shift: Images are moved at random by up to so many pixels.
        seed: Of weights, batches and shifts.
        on_step: Called with the number of steps done and the loss.

    Raises:
        ConfigurationError: If no rollout is an expert's, or ``steps`` is below 1.
    """
    experts = [rollout for rollout in rollouts if rollout.kind == "expert" and rollout.success]
    if not experts or steps < 1:
        raise ConfigurationError(
            f"{len(experts)} successful expert rollouts and {steps} steps; both must be above 0 to learn progress"
        )
    torch.manual_seed(seed)
    network = VideoNetwork(image_size=rollouts[0].frames.shape[1])
    generator = np.random.default_rng(seed)
    optimizer = torch.optim.Adam(network.parameters(), learning_rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    pairs = _pairs(rollouts) if preference else []
    for step in range(steps):
        loss = _progress_loss(network, experts, batch_size, shift, generator)
        loss = loss + _success_loss(network, rollouts, batch_size, shift, generator)
        if pairs:
            loss = loss + _preference_loss(network, pairs, max(batch_size // 8, 1), shift, generator)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()
        on_step(step + 1, loss.item())
    model = VideoProgressModel(network, _replay(rollouts, generator))
    endings = torch.stack([ending(rows) for rows in model.features(*_shown(rollouts))])
    network.typical, network.spread = endings.mean(0), endings.std(0) + 0.1  # a feature that is always 0 tells nothing
    return VideoProgressModel(network, model.replay)


def ending(features: Tensor) -> Tensor:
    """Return the mean features of the last three of T frames [T, width]; [width]."""
    return features[-3:].mean(0)


def _shown(rollouts: Sequence[Rollout]) -> tuple[list[Video], list[str]]:
    """Return the frames of each rollout that a reward is made of, and the instructions."""
    videos = [rollout.frames[spaced_frames(len(rollout.frames), _FRAMES)] for rollout in rollouts]
    return videos, [rollout.instruction for rollout in rollouts]


Pair = tuple[Sequence[Rollout], Sequence[Rollout]]


def _pairs(rollouts: Sequence[Rollout]) -> list[Pair]:
    """Return successes and failures of each task that has both."""
    by_task = {task: [r for r in rollouts if r.task == task] for task in dict.fromkeys(r.task for r in rollouts)}
    split = [([r for r in own if r.success], [r for r in own if not r.success]) for own in by_task.values()]
    return [(good, bad) for good, bad in split if good and bad]


def _draw(rollouts: Sequence[Rollout], n: int, generator: np.random.Generator) -> list[tuple[Rollout, int]]:
    chosen = [rollouts[i] for i in generator.integers(len(rollouts), size=n)]
    return [(rollout, int(generator.integers(len(rollout.frames)))) for rollout in chosen]


def _encode(
    network: VideoNetwork, rows: Sequence[tuple[Rollout, int]], shift: int, generator: np.random.Generator
) -> Tensor:
    both = np.stack([np.concatenate([rollout.frames[t], rollout.frames[0]], axis=2) for rollout, t in rows])
    moved = shifted(both, shift, generator)  # both frames alike, since the camera stands still
    features: Tensor = network(moved[..., :3], moved[..., 3:], [rollout.instruction for rollout, _ in rows])
    return features


def _progress_loss(
    network: VideoNetwork, experts: Sequence[Rollout], n: int, shift: int, generator: np.random.Generator
) -> Tensor:
    rows = _draw(experts, n, generator)
    logits = network.progress(_encode(network, rows, shift, generator))
    targets = [float(progress[t]) for rollout, t in rows if (progress := rollout.progress) is not None]
    return F.cross_entropy(logits, two_hot(torch.tensor(targets)))


def _success_loss(
    network: VideoNetwork, rollouts: Sequence[Rollout], n: int, shift: int, generator: np.random.Generator
) -> Tensor:
    rows = _draw(rollouts, n, generator)
    logits = network.success(_encode(network, rows, shift, generator))[:, 0]
    targets = torch.tensor([float(rollout.solved[t]) for rollout, t in rows])
    return F.binary_cross_entropy_with_logits(logits, targets)


def _preference_loss(
    network: VideoNetwork, pairs: Sequence[Pair], n: int, shift: int, generator: np.random.Generator
) -> Tensor:
    """Bradley-Terry: the mean preference score over a success's frames exceeds that over a failure's."""
    rows: list[tuple[Rollout, int]] = []
    for _ in range(n):
        good, bad = pairs[int(generator.integers(len(pairs)))]
        for side in (good, bad):
            rollout = side[int(generator.integers(len(side)))]
            rows += [(rollout, int(t)) for t in spaced_frames(len(rollout.frames), _FRAMES)]
    scores = network.preference(_encode(network, rows, shift, generator)).view(n, 2, _FRAMES).mean(2)
    return F.softplus(scores[:, 1] - scores[:, 0]).mean()


def _label_loss(
    network: VideoNetwork,
    shown: NDArray[np.uint8],
    instructions: Sequence[str],
    labels: Tensor,
    generator: np.random.Generator,
) -> Tensor:
    """Compare the mean success logit of n rollouts' last frames with their labels; [n, first and last 3, H, W, 3]."""
    n, seen, height, width, _ = shown.shape
    together = shown.transpose(0, 2, 3, 1, 4).reshape(n, height, width, seen * 3)
    moved = shifted(together, 2, generator).reshape(n, height, width, seen, 3).transpose(0, 3, 1, 2, 4)
    last = moved[:, 1:].reshape(-1, height, width, 3)
    repeated = [instruction for instruction in instructions for _ in range(seen - 1)]
    features = network(last, np.repeat(moved[:, 0], seen - 1, axis=0), repeated)
    logits = network.success(features)[:, 0].view(n, seen - 1).mean(1)
    return F.binary_cross_entropy_with_logits(logits, labels)


def _replay_loss(network: VideoNetwork, replay: Replay, n: int, generator: np.random.Generator) -> Tensor:
    chosen = generator.integers(len(replay.solved), size=n)
    moved = shifted(np.concatenate([replay.frames[chosen], replay.first[chosen]], axis=3), 2, generator)
    features = network(moved[..., :3], moved[..., 3:], [replay.instructions[i] for i in chosen])
    solved = torch.as_tensor(replay.solved[chosen], dtype=torch.float32)
    return F.binary_cross_entropy_with_logits(network.success(features)[:, 0], solved)


def _replay(rollouts: Sequence[Rollout], generator: np.random.Generator) -> Replay:
    rows = _draw(rollouts, _REPLAYED, generator)
    return Replay(
        np.stack([rollout.frames[t] for rollout, t in rows]),
        np.stack([rollout.frames[0] for rollout, _ in rows]),
        [rollout.instruction for rollout, _ in rows],
        np.array([rollout.solved[t] for rollout, t in rows]),
    )


def two_hot(targets: Tensor) -> Tensor:
    """Return distributions over the bins whose means are ``targets`` [n] in [0, 1]; [n, BINS]."""
    place = targets * (BINS - 1)
    low = place.floor().clamp(max=BINS - 2).long()
    share = (place - low).unsqueeze(1)
    rows = torch.zeros(len(targets), BINS)
    rows.scatter_(1, low.unsqueeze(1), 1.0 - share)
    return rows.scatter_(1, low.unsqueeze(1) + 1, share)

"""Policies of LeRobot (ACT, Diffusion, SmolVLA, pi0 and the others), on our environments.

- ``LeRobotPolicy`` - a checkpoint as LeRobot saves it, with its own pre- and postprocessors.
"""

from __future__ import annotations

import copy
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wmrl_envs.errors import CheckpointError, ConfigurationError, MissingExtraError, did_you_mean
from wmrl_envs.robotics.vla import Observations, check_generator, check_observations

try:
    import torch
    from lerobot.configs.policies import PreTrainedConfig
    from lerobot.policies.factory import get_policy_class, make_pre_post_processors
except ImportError as error:
    raise MissingExtraError(
        f"LeRobot's policies need lerobot ({error}); it pins other versions than ours of much, so install it in an "
        "environment of its own: pip install wmrl-envs lerobot (Python 3.12 or newer), with what the policy needs, "
        "such as 'lerobot[smolvla]'"
    ) from error

__all__ = ["LeRobotPolicy"]

_STATE = "observation.state"


class LeRobotPolicy:
    """Acts as a LeRobot policy does, with a plan of its own for each slot.

    Policies that look at one observation plan for all slots that need it in one batch (``predict_action_chunk``);
    those that remember observations, or average their plans, do so slot by slot (``select_action``), since LeRobot's
    own queues take it that all slots begin their episodes together. LeRobot's policies have no ``log_prob``.

    Example:
        >>> policy = LeRobotPolicy.load(Path("checkpoint"), chunk=10)  # doctest: +SKIP
        >>> actions = policy.act(observations)  # doctest: +SKIP
    """

    def __init__(
        self,
        policy: Any,
        preprocessor: Any,
        postprocessor: Any,
        *,
        chunk: int | None = None,
        cameras: Mapping[str, str] | None = None,
    ) -> None:
        """Make a policy of one that is loaded already.

        Args:
            policy: A ``PreTrainedPolicy`` of LeRobot.
            preprocessor: Its own, from LeRobot's batch to the model's.
            postprocessor: Its own, from the model's actions to the environment's.
            chunk: How many actions to return at once, k, for actions [k, a]: the first ones of each new plan. ``None``
                returns one, for actions [a], and makes a new plan when ``n_action_steps`` of one have been taken.
            cameras: Our name (``image``, ``image2``) -> the policy's (``observation.images.top``). ``None`` pairs them
                by their last word or, where that does not tell, in order.

        Raises:
            ConfigurationError: If the policy needs an input that our environments do not have, or an argument does not
                fit it.
        """
        self.policy = policy
        self._preprocessor, self._postprocessor = preprocessor, postprocessor
        config = policy.config
        self._cameras = _paired(list(config.image_features), cameras)
        feature = config.robot_state_feature
        self._state_size: int | None = None if feature is None else feature.shape[0]
        self._check_inputs(config)
        self._looks_back = _looks_back(policy)
        if chunk is not None:
            self._check_chunk(chunk, config)
        self._chunk = chunk
        size = int(config.action_feature.shape[0])
        self.action_shape = (size,) if chunk is None else (chunk, size)
        """[a] or [k, a]."""
        self._plans: dict[int, deque[NDArray[np.float32]]] = defaultdict(deque)
        self._copies: dict[int, Any] = {}

    @classmethod
    def load(cls, folder: Path, *, device: str | None = None, **kwargs: Any) -> LeRobotPolicy:
        """Load a checkpoint: ``config.json``, ``model.safetensors`` and the two processors' files.

        Args:
            folder: The checkpoint's, such as ``checkpoints/last/pretrained_model``.
            device: Such as ``"cuda"``; ``None`` takes a GPU if there is one.
            kwargs: Further arguments of the constructor.

        Raises:
            CheckpointError: If LeRobot cannot load it.
            ConfigurationError: If there is no such folder, or the policy does not fit our environments.
        """
        if not (folder / "config.json").is_file():
            raise ConfigurationError(
                f"there is no {folder / 'config.json'}; a checkpoint of LeRobot is a folder with config.json and "
                "model.safetensors, such as checkpoints/last/pretrained_model of its training"
            )
        if not (folder / "policy_preprocessor.json").is_file():
            raise CheckpointError(
                f"{folder} has no policy_preprocessor.json, so that its normalisation is unknown: LeRobot wrote it "
                "before version 0.4; convert it with LeRobot's migrate_policy_normalization"
            )
        place = device or ("cuda" if torch.cuda.is_available() else "cpu")
        on = {"device_processor": {"device": place}}
        try:
            config = PreTrainedConfig.from_pretrained(folder)
            config.device = place
            policy = get_policy_class(config.type).from_pretrained(folder, config=config)
            pre, post = make_pre_post_processors(config, str(folder), preprocessor_overrides=on)
        except ImportError as error:
            raise MissingExtraError(f"the policy in {folder} needs a package that is missing: {error}") from error
        except Exception as error:
            raise CheckpointError(f"LeRobot cannot load {folder}: {type(error).__name__}: {error}") from error
        return cls(policy, pre, post, **kwargs)

    def act(
        self, observations: Observations, *, deterministic: bool = False, generator: np.random.Generator | None = None
    ) -> NDArray[np.float32]:
        """Choose the actions of all slots; see ``VLAPolicy.act``.

        Args:
            observations: Of n slots.
            deterministic: Begin the noise of a policy that draws (Diffusion, SmolVLA, pi0) with the same seed at each
                call; ACT draws none.
            generator: Where that seed comes from otherwise.

        Returns:
            float32 [n, *action_shape].
        """
        count = check_observations(observations)
        seeds = [0] * count
        if not deterministic:
            seeds = check_generator(generator).integers(2**63, size=count).tolist()
        if self._looks_back:
            return self._selected(observations, seeds)
        if self._chunk is not None:
            return np.ascontiguousarray(self._predicted(observations, range(count), seeds[0])[:, : self._chunk])
        empty = [slot for slot in range(count) if not self._plans[slot]]
        if empty:
            steps = self._predicted(observations, empty, seeds[0])[:, : self.policy.config.n_action_steps]
            for slot, plan in zip(empty, steps, strict=True):
                self._plans[slot].extend(plan)
        return np.stack([self._plans[slot].popleft() for slot in range(count)])

    def reset(self, slots: Iterable[int] | None = None) -> None:
        """Forget plans and past observations of some slots, or of all; see ``VLAPolicy.reset``."""
        for slot in list({*self._plans, *self._copies}) if slots is None else slots:
            self._plans.pop(slot, None)
            self._copies.pop(slot, None)

    def _predicted(self, observations: Observations, slots: Iterable[int], seed: int) -> NDArray[np.float32]:
        """[slots, T, a]: a new plan for each."""
        batch = self._preprocessor(self._batch(observations, list(slots)))
        with _drawing(seed, self.policy.config.device):
            return _array(self._postprocessor(self.policy.predict_action_chunk(batch)))

    def _selected(self, observations: Observations, seeds: Sequence[int]) -> NDArray[np.float32]:
        """[n, a]: LeRobot's own choice, slot by slot."""
        chosen = []
        for slot, seed in enumerate(seeds):
            if slot not in self._copies:
                self._copies[slot] = _with_own_memory(self.policy)
            batch = self._preprocessor(self._batch(observations, [slot]))
            with _drawing(seed, self.policy.config.device):
                action = self._copies[slot].select_action(batch)
            chosen.append(_array(self._postprocessor(action))[0])
        return np.stack(chosen)

    def _batch(self, observations: Observations, slots: list[int]) -> dict[str, Any]:
        """LeRobot's form of some slots' observations: images float32 [n, 3, H, W] in [0, 1], state and task."""
        batch: dict[str, Any] = {"task": [str(observations["instruction"][slot]) for slot in slots]}
        for ours, theirs in self._cameras.items():
            if ours not in observations:
                raise ConfigurationError(f"the policy looks at {ours!r} as {theirs}; only {sorted(observations)} came")
            images = torch.from_numpy(np.ascontiguousarray(observations[ours][slots]))
            batch[theirs] = images.permute(0, 3, 1, 2).contiguous().float() / 255
        if self._state_size is not None:
            state = observations.get("state")
            size = None if state is None else state.shape[1]
            if state is None or size != self._state_size:
                raise ConfigurationError(f"the policy needs a 'state' of {self._state_size} numbers, got {size}")
            batch[_STATE] = torch.from_numpy(state[slots].astype(np.float32))
        return batch

    def _check_inputs(self, config: Any) -> None:
        known = {*config.image_features, _STATE}
        others = sorted(key for key in config.input_features if key not in known)
        if others:
            raise ConfigurationError(
                f"the policy needs {others} besides images and {_STATE}; our environments have images, a state and an "
                "instruction"
            )

    def _check_chunk(self, chunk: int, config: Any) -> None:
        longest = getattr(config, "chunk_size", None) or config.n_action_steps
        if not 1 <= chunk <= longest:
            raise ConfigurationError(f"chunk must be from 1 to {longest}, what the policy plans at once, got {chunk}")
        if self._looks_back:
            raise ConfigurationError(
                f"this policy ({config.type}) remembers observations or averages its plans, so it must see each step: "
                f"take chunk=None and one action per decision, not chunk={chunk}"
            )


def _paired(theirs: list[str], cameras: Mapping[str, str] | None) -> dict[str, str]:
    """Our camera -> the policy's."""
    ours = ("image", "image2")
    if cameras is None:
        if len(theirs) > len(ours):
            raise ConfigurationError(
                f"the policy looks at {theirs}; say which are ours, as in cameras={{'image': '...'}}"
            )
        words = {key.rsplit(".", 1)[-1]: key for key in theirs}
        return words if words.keys() <= {*ours} else dict(zip(ours, theirs, strict=False))
    for key, name in cameras.items():
        if key not in ours:
            raise ConfigurationError(f"there is no camera {key!r}, only {list(ours)}.{did_you_mean(key, ours)}")
        if name not in theirs:
            raise ConfigurationError(f"the policy has no camera {name!r}, only {theirs}.{did_you_mean(name, theirs)}")
    return dict(cameras)


def _looks_back(policy: Any) -> bool:
    """Whether a policy plans from more than one observation, which only its ``select_action`` then keeps."""
    remembered = {*(getattr(policy, "_queues", None) or {})} - {"action"}
    averaged = getattr(policy.config, "temporal_ensemble_coeff", None) is not None
    return bool(remembered) or averaged or (policy.config.n_obs_steps or 1) > 1


def _with_own_memory(policy: Any) -> Any:
    """Return a copy of a policy with the same weights, and queues (or averages) of its own."""
    own = copy.copy(policy)
    shared = {*vars(torch.nn.Module()), "config"}
    for name in vars(policy).keys() - shared:
        setattr(own, name, copy.deepcopy(getattr(policy, name)))
    own.reset()
    return own


def _array(actions: Any) -> NDArray[np.float32]:
    return np.asarray(actions.detach().to("cpu", torch.float32).numpy())


@contextmanager
def _drawing(seed: int, device: str) -> Iterator[None]:
    """Seed torch's own generators, from which LeRobot's policies draw, and leave them as they were after."""
    devices = [torch.device(device)] if device.startswith("cuda") else []
    with torch.no_grad(), torch.random.fork_rng(devices=devices):
        torch.manual_seed(seed)
        yield

"""What the single and the vector ``WorldModelWrapper`` share: settings, state, the choice of the mode."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import gymnasium as gym

from wmrl_envs.correction import Ledger
from wmrl_envs.errors import ConfigurationError, WorldModelError, did_you_mean
from wmrl_envs.world_models import resolve_world_model
from wmrl_envs.wrappers._grading import GradingCore
from wmrl_envs.wrappers._labelling import LabellingCore
from wmrl_envs.wrappers._predicting import Predictor
from wmrl_envs.wrappers._sharing import ByReference, environment_key, settings_key, share

__all__ = ["AnchorFeedback", "Per", "WorldModelState", "build_core", "recorded_kwargs"]

AnchorFeedback = Literal["real", "predicted"]
Per = Literal["step", "episode"]


class WorldModelState:
    """The world model and the ledger that the wrappers of one run share."""

    def __init__(self, predictor: Predictor) -> None:
        """Start an empty ledger beside the model."""
        self.predictor = predictor
        self.ledger = Ledger()

    def state_dict(self) -> dict[str, Any]:
        """Return the ledger and, where it has one, the world model's state."""
        return {"ledger": self.ledger.state_dict(), "world_model": self.predictor.call("state_dict")}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what ``state_dict`` returned."""
        self.ledger.load_state_dict(state["ledger"])
        if state["world_model"] is not None:
            self.predictor.call("load_state_dict", state["world_model"])


def recorded_kwargs(world_model: Any, **settings: Any) -> dict[str, Any]:
    """Return a wrapper's arguments as its spec records them.

    A world model that is an object is not copied with the spec; a tuple is recorded as the list that JSON makes of it.
    """
    named = isinstance(world_model, str | ByReference)
    listed = {name: list(value) if isinstance(value, tuple) else value for name, value in settings.items()}
    return {"world_model": world_model if named else ByReference(world_model), **listed}


def build_core(
    env: Any,
    world_model: Any,
    *,
    anchor_feedback: AnchorFeedback,
    withhold: Sequence[str],
    per: Per,
    max_rescues: int | None,
    run: str,
    world_model_kwargs: Mapping[str, Any] | None,
    observation_space: gym.Space[Any],
    action_space: gym.Space[Any],
) -> tuple[GradingCore | LabellingCore, WorldModelState]:
    """Check the settings against the environment and build the core of its mode.

    Returns:
        The core, and the state that it shares with the other wrappers of the run.

    Raises:
        ConfigurationError: If a setting is unknown or does not fit the environment.
    """
    base = env.unwrapped
    replaces_execution = hasattr(base, "route")
    for name, value, valid in (
        ("anchor_feedback", anchor_feedback, ("real", "predicted")),
        ("per", per, ("step", "episode")),
    ):
        if value not in valid:
            raise ConfigurationError(f"{name} must be one of {valid}, got {value!r}.{did_you_mean(str(value), valid)}")
    if replaces_execution and (withhold or per != "step"):
        raise ConfigurationError(
            f"withhold={tuple(withhold)} and per={per!r} are for environments without a grader; {base} grades through "
            "the world model, so that nothing real is there to withhold. Leave both out"
        )
    if not replaces_execution and anchor_feedback != "real":
        raise ConfigurationError(
            f"anchor_feedback={anchor_feedback!r} is for environments that have a grader; {base} shows what it "
            "shows. Leave it out"
        )
    if replaces_execution and base.route is not None:
        raise ConfigurationError(f"{base} is under a WorldModelWrapper already; wrap a bare environment")
    if not replaces_execution and _ends_at_success(base):
        raise ConfigurationError(
            f"{base} ends its episodes at success, so that their length gives away the label that is to be predicted: "
            "make it with terminate_on_success=False"
        )
    if isinstance(world_model, ByReference):
        world_model = world_model.value
    settings = {
        "world_model": world_model,
        "world_model_kwargs": dict(world_model_kwargs or {}),
        "anchor_feedback": anchor_feedback,
        "withhold": list(withhold),
        "per": per,
    }
    resolve = resolve_world_model if replaces_execution else _resolve_reward_model

    def build() -> WorldModelState:
        return WorldModelState(Predictor(resolve(world_model, **(world_model_kwargs or {}))))

    shared = share(("world model", environment_key(env), settings_key(settings), run), build)
    if replaces_execution:
        grading = GradingCore(
            base,
            shared.predictor,
            shared.ledger,
            show_predicted=anchor_feedback == "predicted",
            max_rescues=max_rescues,
        )
        base.route = grading.route
        return grading, shared
    labelling = LabellingCore(
        getattr(env, "num_envs", 1),
        getattr(base, "group_size", 1),
        shared.predictor,
        shared.ledger,
        per=per,
        observation_space=observation_space,
        action_space=action_space,
        max_rescues=max_rescues,
    )
    return labelling, shared


def _ends_at_success(base: Any) -> bool:
    """Return whether an environment, or one in a batch, is a robot's that says so; of others nothing is known."""
    bases = [env.unwrapped for env in getattr(base, "envs", ())] or [base]
    return any(getattr(getattr(env, "scene", None), "terminate_on_success", False) is True for env in bases)


def _resolve_reward_model(model: Any, **kwargs: Any) -> Any:
    """Return the callable that a ``"package.module:attribute"`` names; a callable passes through."""
    found = model
    if isinstance(model, str):
        module, _, attribute = model.partition(":")
        try:
            found = importlib.import_module(module)
            for name in attribute.split("."):
                found = getattr(found, name)
        except (ImportError, AttributeError, ValueError) as error:
            raise WorldModelError(
                f"cannot import the reward model {model!r}: {error}; name one as 'package.module:attribute' (an "
                "environment without a grader takes a callable)"
            ) from error
        if isinstance(found, type) or kwargs:
            found = found(**kwargs)
    elif kwargs:
        raise ConfigurationError(
            f"world_model_kwargs {sorted(kwargs)} were given with a {type(model).__name__} object; pass them "
            "to its constructor"
        )
    if not callable(found):
        raise ConfigurationError(
            f"{type(found).__name__} is no callable on (observations, actions, next_observations, infos), which an "
            "environment without a grader needs. AutoResearch environments have one when they are single or made with "
            "make_vec(..., vectorization_mode='vector_entry_point')"
        )
    return found

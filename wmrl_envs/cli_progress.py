"""``wmrl progress``: progress models, which score the videos of rollouts."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Annotated, Any

import typer

from wmrl_envs.cli_console import console, errors
from wmrl_envs.errors import ConfigurationError

__all__ = ["progress_app"]

progress_app = typer.Typer(
    help="Train and serve models that score the videos of robots' rollouts.", no_args_is_help=True
)


@progress_app.command()
def train(
    demonstrations: Annotated[Path, typer.Argument(help="Dataset's folder, as wmrl robot collect leaves it.")],
    out: Annotated[Path, typer.Option(help="Folder for the model; must not exist.")],
    steps: Annotated[int, typer.Option(help="Optimiser steps.", min=1)] = 600,
    preference: Annotated[
        bool, typer.Option("--preference/--no-preference", help="Whether successes are compared with failures.")
    ] = True,
    held_out: Annotated[
        float, typer.Option(help="Share of each task's rollouts that the model is measured on.", min=0.05, max=0.9)
    ] = 0.2,
    seed: Annotated[int, typer.Option(help="Of weights, batches and what is held out.", min=0)] = 0,
) -> None:
    """Train the small progress model from demonstrations, and say how good it is on those held out."""
    import torch

    from wmrl_envs.files import write_json
    from wmrl_envs.progress import counting
    from wmrl_envs.robotics.comparison import progress_quality
    from wmrl_envs.robotics.dataset import load_rollouts
    from wmrl_envs.robotics.demonstrations import hold_out
    from wmrl_envs.robotics.video_model import train_video_model

    if out.exists():
        raise ConfigurationError(f"{out} exists already; name another folder by --out")
    torch.set_num_threads(1)  # the network is small: threads would wait for each other
    seen, unseen = hold_out(load_rollouts(demonstrations), held_out, seed=seed)
    if preference and all(rollout.success for rollout in seen):
        _print("no failure is among the rollouts, so that none is compared; collect some with --perturbed")
    with counting(console, "training", steps) as done:
        model = train_video_model(
            seen, steps=steps, preference=preference, seed=seed, on_step=lambda step, loss: done(step, steps)
        )
    quality = progress_quality(model, unseen)
    model.save(out)
    write_json(out / "quality.json", quality | {"trained_on": len(seen), "held_out": len(unseen)})
    _print(f"on {len(unseen)} held-out rollouts:")
    _print(f"  rank correlation of progress with the time to success: {_known(quality, 'rank_correlation')}")
    for kind in ("shaped", "success"):
        _print(f"  a success ranked above a failure by the reward {kind!r}: {_known(quality, kind + '_auc')}")
    _print(f"the model: {out}; fine-tune on it: wmrl train robot --progress-model video:{out}")


def _known(quality: dict[str, float | None], name: str) -> str:
    value = quality[name]
    return "unknown, for want of such rollouts" if value is None else f"{value:.3f}"


@progress_app.command()
def serve(
    model: Annotated[
        str, typer.Argument(help="video:FOLDER, robometer:FOLDER, or your own as module:Class.", metavar="MODEL")
    ],
    host: Annotated[
        str, typer.Option(help="Address to listen at; 0.0.0.0 lets other machines in, and then wants a token.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen at; 0 finds a free one.", min=0, max=65535)] = 8750,
    token_env: Annotated[
        str | None,
        typer.Option(
            help="Environment variable with the token that clients must send; WMRL_PROGRESS_TOKEN, if it is set, by "
            "default.",
            metavar="NAME",
        ),
    ] = None,
    max_megabytes: Annotated[int, typer.Option(help="Most uncompressed frames in one request, in MiB.", min=1)] = 256,
    kwargs: Annotated[list[str], typer.Option(help="Argument of the model as name=value; repeatable.")] = [],  # noqa: B006
) -> None:
    """Serve a progress model over HTTP, so that http://HOST:PORT is one in any other process."""
    from wmrl_envs.robotics.progress import resolve_progress_model
    from wmrl_envs.robotics.progress_server import ProgressServer, check_place

    arguments = dict(_name_value(text) for text in kwargs)
    check_place(host, port, token_env)  # a model may take minutes to load
    before = {number: signal.signal(number, _stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        loaded = _loaded(resolve_progress_model, model, arguments)
        server = ProgressServer(
            loaded, name=_name(model), host=host, port=port, token_env=token_env, max_bytes=max_megabytes * 2**20
        )
        _print(f"serving {model} at {server.url}; stop it with Ctrl-C")
        try:
            server.serve_forever()
        finally:
            if not server.close():
                errors.print("a request was not answered to its end", highlight=False, soft_wrap=True)
            elif hasattr(loaded, "close"):
                loaded.close()
    except KeyboardInterrupt:
        _print("stopped")
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _print(text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def _stop(number: int, frame: Any) -> None:
    """Let SIGTERM, and an interrupt that the shell had ignored, end a server as Ctrl-C does."""
    raise KeyboardInterrupt


def _loaded(resolve: Any, model: str, arguments: dict[str, Any]) -> Any:
    try:
        return resolve(model, **arguments)
    except TypeError as error:
        raise ConfigurationError(f"the progress model {model!r} does not take these --kwargs: {error}") from error


def _name(model: str) -> str:
    """Return what clients are told: the folder's name where it is a path, which may say whose machine it is."""
    kind, _, place = model.partition(":")
    return f"{kind}:{Path(place).name}" if kind in ("video", "robometer") else model


def _name_value(text: str) -> tuple[str, Any]:
    name, separator, value = text.partition("=")
    if not separator or not name.isidentifier():
        raise ConfigurationError(f"kwargs must read name=value, such as batch_size=8; got {text!r}")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value

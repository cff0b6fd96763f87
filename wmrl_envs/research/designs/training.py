"""Solutions for a training loop: how a small language model of letters is set up, optimised, and saved."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from wmrl_envs.errors import TaskError
from wmrl_envs.research.designs.common import Choice, Fragment, Option, source

if TYPE_CHECKING:
    from wmrl_envs.research.task import ResearchTask

__all__ = ["TrainingFamily"]

_DATA = Choice(
    "data", (Option("2 letters before"), Option("4 letters before"), Option("letters in lower case", 0.3, bug=True))
)
_LOWER_CASE = 2
_START = Choice(
    "initialisation", (Option("by the number of inputs"), Option("tiny", 0.7), Option("zeros", 0.5, bug=True))
)
_RATE = Choice(
    "learning rate", (Option("middle"), Option("low"), Option("high"), Option("far too high", 0.4, bug=True))
)
_SCHEDULE = Choice("schedule", (Option("constant"), Option("falling to zero")))
_BATCH = Choice("batch", (Option("64 letters"), Option("256 letters"), Option("all letters", 0.3, bug=True)))
_ALL_LETTERS = 2
_EPOCHS = Choice("epochs", (Option("2"), Option("10"), Option("300", 0.3, bug=True)))
_OPTIMISER = Choice("optimiser", (Option("gradient descent"), Option("momentum"), Option("Adam")))
_SAVING = Choice(
    "saving",
    (
        Option("last weights"),
        Option("running mean of the weights"),
        Option("without names", 0.25, bug=True),
        Option("forgotten", 0.25, bug=True),
    ),
)
_MEAN, _UNNAMED, _FORGOTTEN = 1, 2, 3

_RATES = ((0.3, 0.06, 1.5, 300.0), (0.03, 0.006, 0.15, 30.0), (0.003, 0.0006, 0.015, 3.0))
"""By optimiser, the learning rates in the order of ``_RATE``."""

_STARTS = (
    ("rng.normal(0, 1, (27, 8))", "rng.normal(0, 1, (8 * CONTEXT, 64)) / np.sqrt(8 * CONTEXT)", "/ np.sqrt(64)"),
    ("rng.normal(0, 0.01, (27, 8))", "rng.normal(0, 0.01, (8 * CONTEXT, 64))", "* 0.01"),
    ("np.zeros((27, 8))", "np.zeros((8 * CONTEXT, 64))", ""),
)

_GRADIENTS = (
    "def gradients(x, y):",
    '    inputs = weights["embedding"][x].reshape(len(x), -1)',
    '    hidden = np.tanh(inputs @ weights["hidden"] + weights["hidden_bias"])',
    '    logits = hidden @ weights["output"] + weights["output_bias"]',
    "    error = np.exp(logits - logits.max(axis=1, keepdims=True))",
    "    error /= error.sum(axis=1, keepdims=True)",
    "    error[np.arange(len(y)), y] -= 1",
    "    error /= len(y)",
    '    back = (error @ weights["output"].T) * (1 - hidden**2)',
    '    embedding = np.zeros_like(weights["embedding"])',
    '    np.add.at(embedding, x.ravel(), (back @ weights["hidden"].T).reshape(-1, 8))',
    "    return {",
    '        "embedding": embedding,',
    '        "hidden": inputs.T @ back,',
    '        "hidden_bias": back.sum(axis=0),',
    '        "output": hidden.T @ error,',
    '        "output_bias": error.sum(axis=0),',
    "    }",
)


class TrainingFamily:
    """The solutions for a task like the bundled ``training-loop``: ``input/names.txt`` in, ``weights.npz`` out."""

    choices: tuple[Choice, ...] = (_DATA, _START, _RATE, _SCHEDULE, _BATCH, _EPOCHS, _OPTIMISER, _SAVING)

    @classmethod
    def of(cls, task: ResearchTask) -> TrainingFamily:
        """Return the family for a task.

        Raises:
            TaskError: If the task is another one.
        """
        if task.scorer.files[0] != "weights.npz" or not (task.public / "names.txt").is_file():
            raise TaskError(
                f"task {task.id!r}: the training family needs public/names.txt, and weights.npz as the first of files; "
                f"the first is {task.scorer.files[0]}"
            )
        return cls()

    def render(self, picks: Sequence[int]) -> str:
        """Return the source of one solution."""
        data, start, rate, schedule, batch, epochs, optimiser, saving = (int(pick) for pick in picks)
        return source(
            [
                _read(data),
                _weights(start),
                Fragment(_GRADIENTS),
                _state(optimiser, saving),
                _loop(_RATES[optimiser][rate], schedule, batch, epochs, optimiser, saving),
                _end(saving),
            ]
        )

    def flawed(self, picks: Sequence[int]) -> bool:
        """Return False: options that are fine by themselves are fine together."""
        return False

    def random(self, picks: Sequence[int]) -> bool:
        """Return False: every solution seeds its own generator."""
        return False


def _read(data: int) -> Fragment:
    character = "character.lower()" if data == _LOWER_CASE else "character"  # the codes of capitals end before it
    lines = (
        f"CONTEXT = {2 if data == 0 else 4}",
        "rng = np.random.default_rng(0)",
        "",
        "# Each letter with those before it; 0 stands before a name and ends it",
        "windows, letters = [], []",
        'with open("input/names.txt") as file:',
        "    for name in file.read().split():",
        "        window = [0] * CONTEXT",
        f"        for letter in [*(ord({character}) - 64 for character in name), 0]:",
        "            windows.append(window)",
        "            letters.append(letter)",
        "            window = [*window[1:], letter]",
        "windows, letters = np.array(windows), np.array(letters)",
    )
    return Fragment(lines, ("numpy as np",))


def _weights(start: int) -> Fragment:
    embedding, hidden, scale = _STARTS[start]
    output = "np.zeros((64, 27))" if start == 2 else f"rng.normal(0, 1, (64, 27)) {scale}"
    lines = (
        "weights = {",
        f'    "embedding": {embedding},',
        f'    "hidden": {hidden},',
        '    "hidden_bias": np.zeros(64),',
        f'    "output": {output},',
        '    "output_bias": np.zeros(27),',
        "}",
    )
    return Fragment(lines)


def _state(optimiser: int, saving: int) -> Fragment:
    """Return what the loop remembers between steps."""
    zeros = "{name: np.zeros_like(weight) for name, weight in weights.items()}"
    lines = [f"velocity = {zeros}"] if optimiser == 1 else []
    if optimiser == 2:
        lines += [f"first = {zeros}", f"second = {zeros}"]
    if saving == _MEAN:
        lines.append("mean = {name: weight.copy() for name, weight in weights.items()}")
    return Fragment(tuple(lines))


def _loop(rate: float, schedule: int, batch: int, epochs: int, optimiser: int, saving: int) -> Fragment:
    passes = (2, 10, 300)[epochs]
    size = (64, 256, 0)[batch]
    lines = [f"steps = {passes}" if batch == _ALL_LETTERS else f"steps = {passes} * (len(letters) // {size})"]
    lines.append("for step in range(steps):")
    if batch == _ALL_LETTERS:
        lines.append("    gradient = gradients(windows, letters)")
    else:
        lines.append(f"    batch = rng.integers(0, len(letters), {size})")
        lines.append("    gradient = gradients(windows[batch], letters[batch])")
    lines.append(f"    rate = {rate:g}" + (" * (1 - step / steps)" if schedule else ""))
    lines.append("    for name in weights:")
    lines += [f"        {line}" for line in _STEPS[optimiser]]
    if saving == _MEAN:
        lines.append("        mean[name] += 0.02 * (weights[name] - mean[name])")
    return Fragment(tuple(lines))


_STEPS = (
    ("weights[name] -= rate * gradient[name]",),
    ("velocity[name] = 0.9 * velocity[name] + gradient[name]", "weights[name] -= rate * velocity[name]"),
    (
        "first[name] = 0.9 * first[name] + 0.1 * gradient[name]",
        "second[name] = 0.99 * second[name] + 0.01 * gradient[name] ** 2",
        "unbiased = np.sqrt(second[name] / (1 - 0.99 ** (step + 1)))",
        "weights[name] -= rate * first[name] / (1 - 0.9 ** (step + 1)) / (unbiased + 1e-8)",
    ),
)


def _end(saving: int) -> Fragment:
    if saving == _FORGOTTEN:
        return Fragment(('print("trained", sorted(weights))',))
    arguments = "*weights.values()" if saving == _UNNAMED else "**mean" if saving == _MEAN else "**weights"
    return Fragment((f'np.savez("weights.npz", {arguments})',))

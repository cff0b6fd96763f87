"""Why one member of a batch has no answer, and when that means that nothing can be had."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

from wmrl_envs.errors import WorldModelError

__all__ = ["Unanswered", "gather"]

_logger = logging.getLogger(__name__)

T = TypeVar("T")


class Unanswered(Exception):
    """A server gave no answer to one request, for good."""

    def __init__(self, reason: str, *, advice: str = "", own: bool = False) -> None:
        """Say why.

        Args:
            reason: What happened.
            advice: What to do about it where it happens to every request.
            own: It lies with this request (too long, filtered), so that others may well be answered.
        """
        super().__init__(reason)
        self.advice = advice
        self.own = own


async def gather(members: Sequence[Coroutine[Any, Any, T]], server: str) -> list[T | None]:
    """Await the members of a batch together; None, with the reason in the log, for one that has no answer.

    Args:
        members: One coroutine each; ends by an answer or by `Unanswered`.
        server: What to call the server in messages.

    Raises:
        WorldModelError: If none has an answer, and that lies with the server; or as soon as a member raises it.
    """
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(_settle(member)) for member in members]
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
    answers = [task.result() for task in tasks]
    failures = [answer for answer in answers if isinstance(answer, Unanswered)]
    if failures and len(failures) == len(answers) and not any(failure.own for failure in failures):
        raise WorldModelError(f"{server}: {failures[0]}. {failures[0].advice}".rstrip()) from failures[0]
    return [_answer_or_none(answer, place, server) for place, answer in enumerate(answers)]


async def _settle(member: Coroutine[Any, Any, T]) -> T | Unanswered:
    try:
        return await member
    except Unanswered as failure:
        return failure


def _answer_or_none(answer: T | Unanswered, place: int, server: str) -> T | None:
    if not isinstance(answer, Unanswered):
        return answer
    _logger.warning("%s: no answer to member %d of the batch: %s", server, place, answer)
    return None

"""A text space that holds any string: source code, a language model's reply, what a terminal shows."""

from __future__ import annotations

import string
from typing import Any

import numpy as np
from gymnasium.error import CustomSpaceError
from gymnasium.spaces import Text
from gymnasium.vector.utils import create_shared_memory
from numpy.typing import NDArray

__all__ = ["AnyText"]

_PRINTABLE = string.digits + string.ascii_letters + string.punctuation + " \n"
_SAMPLE_CHARS = 256


class AnyText(Text):
    """Any string of at most ``max_length`` characters, whatever the characters are.

    ``gymnasium.spaces.Text`` holds strings over a fixed character set, alphanumeric by default, and no set is wide
    enough for source code with comments in any language. Membership here asks for the length alone. Samples are
    printable ASCII and short, so that they can be read and sent anywhere.

    Example:
        >>> from wmrl_envs.research.spaces import AnyText
        >>> space = AnyText(100)
        >>> "x = 'naïve – 漢字'" in space
        True
        >>> "x" * 101 in space
        False
    """

    def __init__(self, max_length: int, *, min_length: int = 0, seed: int | np.random.Generator | None = None) -> None:
        """Build the space.

        Args:
            max_length: Greatest number of characters, inclusive.
            min_length: Least number of characters, inclusive.
            seed: Seeds sampling.
        """
        super().__init__(max_length, min_length=min_length, charset=_PRINTABLE, seed=seed)

    def sample(
        self,
        mask: tuple[int | None, NDArray[np.int8] | None] | None = None,
        probability: tuple[int | None, NDArray[np.float64] | None] | None = None,
    ) -> str:
        """Return random printable text, at most 256 characters long unless a mask or ``min_length`` asks for more."""
        if mask is None and probability is None:
            longest = max(self.min_length, min(self.max_length, _SAMPLE_CHARS))
            mask = (int(self.np_random.integers(self.min_length, longest + 1)), None)
        return super().sample(mask, probability)

    def contains(self, x: Any) -> bool:
        """Return whether ``x`` is a string of an allowed length."""
        return isinstance(x, str) and self.min_length <= len(x) <= self.max_length

    @property
    def is_np_flattenable(self) -> bool:
        """False: characters outside the sampled ones have no index to flatten to."""
        return False

    def __eq__(self, other: object, /) -> bool:
        """Return whether the other space holds exactly the same strings."""
        return isinstance(other, AnyText) and (self.min_length, self.max_length) == (other.min_length, other.max_length)

    def __repr__(self) -> str:
        return f"AnyText({self.max_length}, min_length={self.min_length})"


@create_shared_memory.register(AnyText)
def _no_shared_memory(space: AnyText, n: int = 1, ctx: object = None) -> None:
    """Refuse: Gymnasium copies text into shared memory through the character set and would lose what is outside it."""
    raise CustomSpaceError(f"{space!r} cannot be copied into shared memory; use shared_memory=False")

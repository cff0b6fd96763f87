"""Python code as coloured pieces of text: the page makes elements of them, so that no code ever becomes HTML."""

from __future__ import annotations

from functools import lru_cache

from wmrl_envs.errors import MissingExtraError

try:
    from pygments.lexers import PythonLexer
    from pygments.token import Comment, Keyword, Name, Number, Operator, String, _TokenType
except ImportError as error:
    raise MissingExtraError(
        f"a report colours code with Pygments ({error}): pip install 'wmrl-envs[report]'"
    ) from error

__all__ = ["coloured_pieces"]

_CLASSES: tuple[tuple[_TokenType, str], ...] = (
    (Comment, "c"),
    (Keyword, "k"),
    (Operator.Word, "k"),
    (String, "s"),
    (Number, "n"),
    (Name.Function, "f"),
    (Name.Class, "f"),
    (Name.Decorator, "f"),
    (Name.Builtin, "b"),
    (Name.Exception, "b"),
)


@lru_cache(maxsize=4096)  # a page that is made anew, smaller or of a run that went on, holds the same programs
def coloured_pieces(code: str) -> tuple[str, ...]:
    """Return ``(class, text, class, text, ...)`` whose texts put together are the code.

    Args:
        code: Python, or anything else, which comes back with few colours.

    Returns:
        Classes are c comment, k keyword, s string, n number, f function or class, b builtin, and empty for the rest.
    """
    pieces: list[str] = []
    for kind, text in PythonLexer(stripnl=False, ensurenl=False).get_tokens(code):
        name = next((name for known, name in _CLASSES if kind in known), "")
        # Space has no colour, so that it need not begin a piece of its own.
        if pieces and (pieces[-2] == name or text.isspace()):
            pieces[-1] += text
        else:
            pieces += [name, text]
    return tuple(pieces)

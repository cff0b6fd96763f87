"""A griffe extension: the docstrings' ``Example:`` sections are code, as their ``Examples:`` would be."""

from __future__ import annotations

import re
from typing import Any

import griffe


class DoctestSections(griffe.Extension):
    """Renames the sections that hold doctests, which griffe would otherwise read as prose."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Rename the section of one object's docstring."""
        if obj.docstring is not None:
            obj.docstring.value = re.sub(r"^( *)Example:$", r"\1Examples:", obj.docstring.value, flags=re.MULTILINE)

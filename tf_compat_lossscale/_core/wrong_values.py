# SPDX-License-Identifier: Apache-2.0
"""Shows a wrong value in an error, with what the user may have meant.

This module imports nothing slow: the command line uses it, too.
"""

from __future__ import annotations

from collections.abc import Iterable
import functools
import types
from typing import Any

_LONGEST = 1000  # Characters of a value in a message.
_CLOSE = 0.6  # From 0 to 1, as `difflib` measures it.
# What users mean the result of. `inspect` would be slow to import.
_CALLED = (
  type,
  functools.partial,
  types.BuiltinFunctionType,
  types.FunctionType,
  types.MethodType,
)


def show(value: Any, words: Iterable[str] = ()) -> str:
  """Returns a wrong value as Python writes it, and a question if one helps.

  The question is in brackets. It is asked of a word that is nearly one of
  `words`, which are allowed, of a class or a function where an object is due,
  and of a number in quotes.
  """
  text = repr(value)
  if len(text) > _LONGEST:
    text = f"{text[: _LONGEST - 3]}..."
  if is_called(value):
    return f"{text} (did you forget ()?)"
  return text + suggest(value, words)


def is_called(value: Any) -> bool:
  """Returns whether a value is a class or a function: users mean its result."""
  return isinstance(value, _CALLED)


def suggest(value: Any, words: Iterable[str] = ()) -> str:
  """Returns a question in brackets about a wrong word, or nothing."""
  if not isinstance(value, str):
    return ""
  near = find_close(value, words)
  if near is not None:
    return f" (did you mean {near if near == 'None' else repr(near)}?)"
  try:
    float(value)
  except ValueError:
    return ""
  return f" (did you mean the number {value.strip()}, without quotes?)"


def find_close(word: str, words: Iterable[str]) -> str | None:
  """Returns the word that a misspelt word stands for; None if none is near."""
  import difflib  # Slow to import.

  plain = {_simplify(known): known for known in words}
  near = difflib.get_close_matches(_simplify(word[:_LONGEST]), plain, 1, _CLOSE)
  return plain[near[0]] if near else None


def _simplify(word: str) -> str:
  return word.strip().lower().replace("-", "_")

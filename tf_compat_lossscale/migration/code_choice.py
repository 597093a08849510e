# SPDX-License-Identifier: Apache-2.0
"""Choice of findings by their codes: `--select` and `--ignore`."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence

from tf_compat_lossscale.migration import rules


class CodeError(ValueError):
  """An error for a code that no rule has; the message is one line."""


def check_codes(words: Iterable[str]) -> None:
  """Checks that each word is a code, or the beginning of a code.

  Raises:
    CodeError: A word is neither.
  """
  known = [rule.code for rule in rules.list_rules()]
  for word in words:
    if not word or not any(code.startswith(word) for code in known):
      raise CodeError(
        f"there is no code {word!r}: expected {', '.join(known)}, or the "
        "beginning of such a code"
      )


def is_selected(
  code: str, select: Sequence[str], ignore: Sequence[str]
) -> bool:
  """Returns whether findings with a code are wanted.

  The longest word that the code begins with decides, so that LS101 can be
  selected although LS1 is ignored. Of equal words, `ignore` wins.

  Args:
    code: The code.
    select: Codes and beginnings of codes; empty for all.
    ignore: The same.
  """
  wanted = max(
    (len(word) for word in select if code.startswith(word)),
    default=-1 if select else 0,
  )
  unwanted = max(
    (len(word) for word in ignore if code.startswith(word)), default=-1
  )
  return wanted > unwanted

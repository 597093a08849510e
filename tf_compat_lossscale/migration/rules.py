# SPDX-License-Identifier: Apache-2.0
"""The register of rules, and the choice of rules by their codes.

The rules are in `rewrites/`. Each has a text for the documentation: its first
line says what a finding is, the rest why the code has to change and what
happens to it.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
import functools
import importlib
import pkgutil
from typing import NamedTuple
from typing import TYPE_CHECKING
from typing import TypeAlias

from tf_compat_lossscale._core import wrong_values

if TYPE_CHECKING:
  from tf_compat_lossscale.migration import files
  from tf_compat_lossscale.migration import findings

_Find: TypeAlias = "Callable[[files.File], Iterator[findings.Finding]]"
_FOLDER = "tf_compat_lossscale.migration.rewrites"


class CodeError(ValueError):
  """An error for a code that no rule has; the message is one line."""


class Rule(NamedTuple):
  """A kind of finding.

  Attributes:
    code: Such as "LS101".
    name: A name in words, such as "legacy-name".
    find: The function that yields the findings in a file.
    examples: Sources before and after `migrate --write`; both are the same if
      the rule leaves the place to the user.
    summary: What a finding is, in a sentence.
    explanation: Why the code has to change, and what happens to it.
    of_program: Whether the findings depend on what other files tell, beyond the
      TensorFlow that the file means. `find` may then read the syntax tree of
      few files alone: it may not be in memory any more.
  """

  code: str
  name: str
  find: _Find
  examples: tuple[tuple[str, str], ...]
  summary: str
  explanation: str
  of_program: bool


_rules: dict[str, Rule] = {}


def rule(
  code: str,
  name: str,
  page: str | None,
  *examples: str,
  of_program: bool = False,
) -> Callable[[_Find], _Find]:
  """Registers the function below it as a rule.

  Args:
    code: The code, of "LS" and three digits.
    name: The name in words.
    page: The summary, a sentence on a line of its own, and the explanation.
    *examples: Diffs: a line that begins with "-" is in the source before
      `migrate` alone, one with "+" afterwards alone, and one with " " always.
    of_program: As of a rule.
  """
  summary, _, explanation = (page or "").strip().partition("\n")
  pairs = tuple((_drop(each, "+"), _drop(each, "-")) for each in examples)

  def register(find: _Find) -> _Find:
    assert code not in _rules, code
    rest = summary, explanation.strip(), of_program
    _rules[code] = Rule(code, name, find, pairs, *rest)
    return find

  return register


def _drop(diff: str, mark: str) -> str:
  """Returns a diff without the lines that begin so, and without its marks."""
  lines = diff.splitlines(keepends=True)
  return "".join(x[1:] or x for x in lines if not x.startswith(mark))


@functools.cache  # A scan asks for each file.
def list_rules() -> tuple[Rule, ...]:
  """Returns all rules, in the order of their codes."""
  folder = importlib.import_module(_FOLDER)
  for module in pkgutil.iter_modules(folder.__path__):
    importlib.import_module(f"{_FOLDER}.{module.name}")
  return tuple(_rules[code] for code in sorted(_rules))


def check_codes(words: Iterable[str]) -> None:
  """Checks that each word is a code, or the beginning of a code.

  Raises:
    CodeError: A word is neither.
  """
  known = [each.code for each in list_rules()]
  for word in words:
    if not word or not any(code.startswith(word) for code in known):
      raise CodeError(
        f"there is no code {word!r}: expected {', '.join(known)}, or the "
        f"beginning of such a code{wrong_values.suggest(word, known)}"
      )


def select_rules(
  select: Sequence[str], ignore: Sequence[str]
) -> tuple[Rule, ...]:
  """Returns the rules whose findings are wanted, in the order of their codes.

  The longest word that the code begins with decides, so that LS101 can be
  selected although LS1 is ignored. Of equal words, `ignore` wins. Nothing in
  `select` is all.
  """
  if not select and not ignore:
    return list_rules()

  def measure(words: Sequence[str], code: str) -> int:
    return max((len(w) for w in words if code.startswith(w)), default=-1)

  return tuple(
    rule
    for rule in list_rules()
    if measure(select or [""], rule.code) > measure(ignore, rule.code)
  )

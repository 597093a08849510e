# SPDX-License-Identifier: Apache-2.0
"""The register of rules, and the choice of rules by their codes.

A rule is a file in `rewrites/`. The file's docstring is its page in the
documentation: the first line says what a finding is, the rest says why the code
has to change and what happens to it.
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

from tf_compat_lossscale._core import wrong_values

if TYPE_CHECKING:
  from tf_compat_lossscale.migration import files
  from tf_compat_lossscale.migration import findings

_FOLDER = "tf_compat_lossscale.migration.rewrites"


class CodeError(ValueError):
  """An error for a code that no rule has; the message is one line."""


class Rule(NamedTuple):
  """A kind of finding.

  Attributes:
    code: Such as "LS101".
    name: A name in words, such as "legacy-name".
    find: The function that yields the findings in a file. Its module's
      docstring is the rule's documentation.
    examples: Sources before and after `migrate --write`; both are the same if
      the rule leaves the place to the user.
    summary: The first line of that docstring.
    explanation: The rest of it.
  """

  code: str
  name: str
  find: Callable[[files.File], Iterator[findings.Finding]]
  examples: tuple[tuple[str, str], ...]
  summary: str
  explanation: str


_rules: dict[str, Rule] = {}


def rule(
  code: str, name: str, *examples: tuple[str, str]
) -> Callable[
  [Callable[[files.File], Iterator[findings.Finding]]],
  Callable[[files.File], Iterator[findings.Finding]],
]:
  """Registers the function below it as a rule.

  Args:
    code: The code, of "LS" and three digits.
    name: The name in words.
    *examples: Pairs of sources before and after `migrate`.
  """

  def register(
    find: Callable[[files.File], Iterator[findings.Finding]],
  ) -> Callable[[files.File], Iterator[findings.Finding]]:
    assert code not in _rules, code
    doc = (importlib.import_module(find.__module__).__doc__ or "").strip()
    summary, _, explanation = doc.partition("\n")
    _rules[code] = Rule(
      code,
      name,
      find,
      examples,
      summary.strip(),
      explanation.strip(),
    )
    return find

  return register


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
  selected although LS1 is ignored. Of equal words, `ignore` wins.

  Args:
    select: Codes and beginnings of codes; empty for all.
    ignore: The same.
  """
  if not select and not ignore:
    return list_rules()
  found = []
  for rule in list_rules():
    wanted = max(
      (len(word) for word in select if rule.code.startswith(word)),
      default=-1 if select else 0,
    )
    unwanted = max(
      (len(word) for word in ignore if rule.code.startswith(word)), default=-1
    )
    if wanted > unwanted:
      found.append(rule)
  return tuple(found)

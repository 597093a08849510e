"""Which tensor of a checkpoint a variable is to get, by names."""

from __future__ import annotations

from collections.abc import Mapping
import dataclasses

from tf_compat_lossscale.checkpoint import _errors
from tf_compat_lossscale.checkpoint import layouts
from tf_compat_lossscale.checkpoint import names
from tf_compat_lossscale.checkpoint.bundle import Tensor
from tf_compat_lossscale.checkpoint.writing import Literal
from tf_compat_lossscale.checkpoint.writing import Source

_NO_SCALE = "the checkpoint has no loss scale for it"


@dataclasses.dataclass
class Match:
  """Variables and their tensors.

  Attributes:
    sources: Variable -> where its value comes from.
    initialized: Variable -> why it is to start from its initial value.
  """

  sources: dict[str, Source] = dataclasses.field(default_factory=dict)
  initialized: dict[str, str] = dataclasses.field(default_factory=dict)

  @property
  def exact(self) -> bool:
    """Whether every variable gets what has its name, as it is."""
    return not self.initialized and all(
      origin(source) == name and not isinstance(source, Literal)
      for name, source in self.sources.items()
    )


def origin(source: Source) -> str:
  """The key that a value comes from."""
  return source.origin if isinstance(source, Literal) else source.name


def match(
  targets: Mapping[str, Tensor],
  variables: layouts.Variables,
  excused: Mapping[str, str],
  path: str,
) -> Match:
  """Finds a tensor for every variable.

  A variable gets what has its name. Otherwise, an optimizer's own variable
  gets what has its name but for conds and numbers; a loss scale gets the one
  of its scope, or of its place, of whichever API; and if there is none it
  starts anew.

  Args:
    targets: Variable -> dtype and shape.
    variables: What is in the checkpoint, by names of variables.
    excused: Those that are not to be restored -> why.
    path: The checkpoint, for messages.

  Returns:
    What is found.

  Raises:
    CheckpointError: There is nothing for a variable, or it is of another
      dtype or shape.
  """
  result = Match(initialized=dict(excused))
  wanted = {n: t for n, t in targets.items() if n not in excused}
  states = names.loss_scales(wanted)
  theirs = layouts.found_in(variables)
  for state, other in _paired(states, theirs).items():
    if other is None:
      result.initialized.update(dict.fromkeys(state.names, _NO_SCALE))
    else:
      found = layouts.scale_of(variables, other, state.api)
      result.sources.update(zip(state.names, found))
  scales = {name for state in [*states, *theirs] for name in state.names}
  rest = [name for name in wanted if name not in scales]
  aliases = _aliases(rest, [name for name in variables if name not in scales])
  problems = []
  for name in rest:
    source = variables.get(aliases.get(name, name))
    if source is not None and source.tensor == wanted[name]:
      result.sources[name] = source
    else:
      problems.append((name, source))
  if problems:
    raise _errors.misfit(
      path,
      [
        f"{name}{_errors.nearest(name, variables)} is not in it"
        if source is None
        else f"{name} is {wanted[name]} but {source.tensor} in it"
        for name, source in problems[: _errors.MOST]
      ],
      len(problems),
    )
  return result


def _paired(
  states: list[names.State], theirs: list[names.State]
) -> dict[names.State, names.State | None]:
  """A loss scale of the checkpoint for each one here, if there is one."""
  pairs: dict[names.State, names.State | None] = dict.fromkeys(states)
  left = list(theirs)
  for same in (
    lambda a, b: a == b,
    lambda a, b: (a.api, a.scope) == (b.api, b.scope),
    lambda a, b: a.scope == b.scope,
  ):
    for state in states:
      if pairs[state] is None:
        other = next((o for o in left if same(state, o)), None)
        if other:
          pairs[state] = other
          left.remove(other)
  alone = [state for state in states if pairs[state] is None]
  if len(alone) == len(left):
    pairs.update(zip(alone, left))
  return pairs


def _aliases(wanted: list[str], given: list[str]) -> dict[str, str]:
  """What variables are called in the checkpoint that have other names here.

  Those of a family belong together in the order in which they were made, if
  there are as many of them here as there.

  Args:
    wanted: The names here, in the order in which the variables were made.
    given: The names there.
  """
  ours = names.families(wanted)
  theirs = names.families(given)
  aliases: dict[str, str] = {}
  for family in [f for f in ours if len(ours[f]) == len(theirs.get(f, []))]:
    aliases.update(zip(ours.pop(family), theirs.pop(family)))
  # Powers that are scoped here and numbered there, or the other way round.
  for base in {f.base for f in ours if names.is_power(f.base)}:
    mine = [n for f in ours if f.base == base for n in ours[f]]
    scopes = [f for f in theirs if f.base == base]
    scopes.sort(key=lambda family: _first_of_scope(family.scope, wanted))
    others = [name for family in scopes for name in theirs[family]]
    if len(mine) == len(others):
      aliases.update(zip(sorted(mine, key=wanted.index), others))
  return aliases


def _first_of_scope(scope: str, wanted: list[str]) -> int:
  """Where variables of a scope begin; a scope's power is not far from them."""
  begins = (i for i, name in enumerate(wanted) if name.startswith(scope))
  return next(begins, len(wanted))

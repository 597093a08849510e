"""From one layout of variables to another: what is called what, and is what.

Nothing is read or written here but single scalars: a layout is a mapping from
names to where their tensors come from.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping

from tf_compat_lossscale.checkpoint import names
from tf_compat_lossscale.checkpoint._errors import CheckpointError
from tf_compat_lossscale.checkpoint.bundle import Bundle
from tf_compat_lossscale.checkpoint.writing import Literal
from tf_compat_lossscale.checkpoint.writing import Source
from tf_compat_lossscale.checkpoint.writing import Stored

_INT32_MAX = 2**31 - 1
Variables = dict[str, Source]


def value(source: Source) -> float | int:
  """The value of a scalar."""
  if isinstance(source, Literal):
    assert not isinstance(source.value, bytes)
    return source.value
  return source.bundle.scalar(source.name)


def found_in(variables: Mapping[str, Source]) -> list[names.State]:
  """The loss scales among variables."""
  return names.loss_scales({n: s.tensor for n, s in variables.items()}).known


def scale_of(
  variables: Mapping[str, Source], state: names.State, api: str
) -> list[Source]:
  """A loss scale's variables, as another API has them.

  Args:
    variables: All variables.
    state: The names of the loss scale's.
    api: COMPAT or CONTRIB.

  Returns:
    The variables in the order of `names.LAYOUTS[api]`. Bad steps, which only
    tf.contrib counts, are dropped or start from 0.

  Raises:
    CheckpointError: A count is too large for tf.contrib's int32.
  """
  sources = [variables[name] for name in state.names]
  if state.api == api:
    return sources
  good = int(value(sources[1]))
  if api == names.CONTRIB and good > _INT32_MAX:
    raise CheckpointError(
      f"{state.names[1]} is {good}, more than tf.contrib's int32 can hold"
    )
  _, good_steps, *bad_steps = names.LAYOUTS[api].values()
  return [
    sources[0],
    Literal(good_steps.dtype, good, origin=state.names[1]),
    *(Literal(bad.dtype, 0) for bad in bad_steps),
  ]


def anew(loss_scale: float, api: str) -> list[Source]:
  """The variables of a loss scale that has counted nothing yet."""
  first, *counts = names.LAYOUTS[api].values()
  return [
    Literal(first.dtype, loss_scale),
    *(Literal(count.dtype, 0) for count in counts),
  ]


def with_names(
  variables: Mapping[str, Source], api: str | None, control_flow: str
) -> Variables:
  """Variables as a Saver has them in another API or control flow.

  Args:
    variables: Saver's name -> the tensor.
    api: COMPAT or CONTRIB; None for a model without loss scaling.
    control_flow: 'v1' or 'v2'. In the latter, and without a dynamic loss
      scale, an optimizer's own variables are not in a cond.

  Returns:
    The same, by other names.

  Raises:
    CheckpointError: Two variables would have one name.
  """
  states = found_in(variables)
  theirs = {name for state in states for name in state.names}
  contrib = {state.api for state in states} == {names.CONTRIB}
  if states and api and control_flow == "v1":
    shift = (api == names.CONTRIB) - contrib
    rename = _into_conds(variables, api, -shift)
  else:
    rename = _out_of_conds(variables)
  result: Variables = {}
  for name, source in variables.items():
    if name not in theirs:
      _add(result, rename(name), source)
  if api:
    counts: dict[str, int] = {}
    for state in states:
      number = counts.get(state.scope, 0)
      counts[state.scope] = number + 1
      for base, source in zip(
        names.LAYOUTS[api], scale_of(variables, state, api)
      ):
        _add(result, state.scope + names.numbered(base, number), source)
  return result


def _add(variables: Variables, name: str, source: Source) -> None:
  if name in variables:
    raise CheckpointError(
      f"two variables would be called {name}: this layout cannot hold both"
    )
  variables[name] = source


def _into_conds(
  variables: Iterable[str], api: str, shift: int
) -> Callable[[str], str]:
  """How variables are called that are made in the conds of an API.

  An optimizer takes two conds. `compat.v1` applies gradients in the second of
  them, tf.contrib in the first.

  Args:
    variables: The names of all.
    api: COMPAT or CONTRIB.
    shift: What is added to the number of a cond that is there already.
  """
  first = 1 if api == names.COMPAT else 0
  plain = names.families(
    name
    for name in variables
    if names.is_power(name) and names.innermost_cond(name) is None
  )

  def rename(name: str) -> str:
    scope, last = names.split_scope(name)
    number = names.innermost_cond(name)
    if number is not None:
      return _with_cond(name, max(0, number + shift))
    if not names.is_power(name):
      return name
    order = plain[names.family(name)].index(name)
    cond = names.numbered("cond", 2 * order + first)
    return f"{scope}{cond}/{names.split_number(last)[0]}"

  return rename


def _with_cond(name: str, number: int) -> str:
  parts = name.split("/")
  for i in range(len(parts) - 2, -1, -1):
    if names.innermost_cond(parts[i] + "/") is not None:
      parts[i] = names.numbered("cond", number)
      break
  return "/".join(parts)


def _out_of_conds(variables: Iterable[str]) -> Callable[[str], str]:
  """How variables are called that are made in no cond."""
  families = names.families(filter(names.is_power, variables))

  def rename(name: str) -> str:
    if not names.is_power(name):
      return names.without_conds(name)
    family = names.family(name)
    order = families[family].index(name)
    return family.scope + names.numbered(family.base, order)

  return rename


def stored(pairs: Iterable[tuple[str, str]], bundle: Bundle) -> Variables:
  """A checkpoint's variables by the names that a Saver would have for them.

  Args:
    pairs: (name, key), as `describing.values_of` has them.
    bundle: The checkpoint.

  Returns:
    Name -> the tensor.

  Raises:
    CheckpointError: Two different ones have one name.
  """
  variables: Variables = {}
  for name, key in pairs:
    source = Stored(bundle, key)
    if variables.get(name, source) != source:
      raise CheckpointError(
        f"{bundle.prefix}: two variables are called {name} there; they cannot "
        "be told apart by name"
      )
    variables[name] = source
  return variables

"""From one layout of variables to another: what is called what, and is what.

Nothing is read or written here but single scalars: a layout is a mapping from
names to where their tensors come from.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Mapping
import dataclasses

from tf_compat_lossscale.checkpoint.files.bundle import Bundle
from tf_compat_lossscale.checkpoint.files.entries import TensorSpec
from tf_compat_lossscale.checkpoint.files.errors import CheckpointError
from tf_compat_lossscale.checkpoint.files.sources import Literal
from tf_compat_lossscale.checkpoint.files.sources import Source
from tf_compat_lossscale.checkpoint.files.sources import Stored
from tf_compat_lossscale.checkpoint.layouts import names

_INT32_MAX = 2**31 - 1
Variables = dict[str, Source]


@dataclasses.dataclass
class Match:
  """Variables and their tensors.

  Attributes:
    sources: Variable -> where its value comes from.
    initialized: Variable -> why it is to start from its initial value.
    proofs: Variable -> how its source was found, if not by its name.
  """

  sources: dict[str, Source] = dataclasses.field(default_factory=dict)
  initialized: dict[str, str] = dataclasses.field(default_factory=dict)
  proofs: dict[str, str] = dataclasses.field(default_factory=dict)

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


def value(source: Source) -> float | int:
  """The value of a scalar."""
  if isinstance(source, Literal):
    assert not isinstance(source.value, bytes)
    return source.value
  return source.bundle.scalar(source.name)


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
  _, good_steps, *bad_steps = names.LAYOUTS[api].values()
  return [
    sources[0],
    as_counter(sources[1], good_steps),
    *(Literal(bad.dtype, 0) for bad in bad_steps),
  ]


def as_counter(source: Source, tensor: TensorSpec) -> Source:
  """A counter of a loss scale with the dtype of another API's."""
  same = not source.spec.shape and not tensor.shape
  if source.spec == tensor or not same:
    return source
  if not {source.spec.dtype, tensor.dtype} <= {"int32", "int64"}:
    return source
  count = int(value(source))
  name = origin(source)
  if tensor.dtype == "int32" and count > _INT32_MAX:
    raise CheckpointError(
      f"{name} is {count}, more than tf.contrib's int32 can hold"
    )
  return Literal(tensor.dtype, count, origin=name)


def anew(loss_scale: float, api: str) -> list[Source]:
  """The variables of a loss scale that has counted nothing yet."""
  first, *counts = names.LAYOUTS[api].values()
  return [
    Literal(first.dtype, loss_scale),
    *(Literal(count.dtype, 0) for count in counts),
  ]


def stored(pairs: Iterable[tuple[str, str]], bundle: Bundle) -> Variables:
  """A checkpoint's variables by the names that a Saver would have for them.

  Args:
    pairs: The name and the key of each variable.
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

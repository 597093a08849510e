# SPDX-License-Identifier: Apache-2.0
"""Targets, which want values, and the sources of the values.

Every way to restore a checkpoint makes a `Target` of each variable and decides
on the `Source` of its value: `_matching` and `_eager` by names, `_by_object` by
the object graph. Then `fill` reads all values, checks them, and assigns them.
So nothing is assigned unless all is found.
"""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import difflib
import itertools
import math
import shlex
from typing import Any

import numpy as np
import tensorflow.compat.v2 as tf

from tf_compat_lossscale._core import session_values
from tf_compat_lossscale._core.tf import tracking
from tf_compat_lossscale.checkpoint import names
from tf_compat_lossscale.checkpoint._report import Report
from tf_compat_lossscale.checkpoint.reading import Checkpoint
from tf_compat_lossscale.checkpoint.reading import CheckpointError
from tf_compat_lossscale.checkpoint.reading import shorten
from tf_compat_lossscale.checkpoint.reading import TensorSpec

_TRIED = 5  # The number of optimizers whose powers are exchanged at most.
_COMPARED = 300  # The number of names that a name is compared with at most.
# Why a target gets no value of the checkpoint, or gets it otherwise.
NO_SCALE = "the checkpoint has no loss scale for it"
NOT_THERE = "it is not in the checkpoint"
NO_COUNT = "the checkpoint's loss scale has no such variable"
MAPPED = "the mapping says so"
TO_NONE = "it is mapped to None"
OTHER_API = "the same loss scale, of another API"
# When a printed mapping is right.
IN_ORDER = "both programs make their optimizers in one order"
FIRST = "first those with a loss scale on both sides"
BY_VALUE = "each power is one of the beta that it gets"
_FLOATS = {"float16", "bfloat16", "float32", "float64"}
_COUNTERS = {"int32", "int64"}


@dataclasses.dataclass(frozen=True)
class Source:
  """The source of a variable's value.

  Attributes:
    key: The tensor in the checkpoint; "" if there is none.
    spec: The dtype and shape of the value. The tensor is cast if it has
      another dtype.
    value: The value, if it is not the tensor's.
    factor: What the tensor is multiplied by.
    why: How the source was found, if not by its name.
  """

  key: str
  spec: TensorSpec
  value: float | int | None = None
  factor: float = 1.0
  why: str = ""

  def read(self, checkpoint: Checkpoint) -> np.ndarray:
    """Returns the value; raises an error if it does not fit the dtype."""
    if self.value is not None:
      dtype = tf.as_dtype(self.spec.dtype).as_numpy_dtype
      return np.full(self.spec.shape, self.value, dtype)
    return self.change(checkpoint.read(self.key), checkpoint.prefix)

  def change(self, value: np.ndarray, path: str) -> np.ndarray:
    """Returns the value that comes of a tensor, or of a slice of it."""
    dtype = tf.as_dtype(self.spec.dtype).as_numpy_dtype
    if self.factor != 1:  # A product may not fit in float16.
      wide = np.float64 if self.spec.dtype in _FLOATS else value.dtype
      value = value.astype(wide) * self.factor
    if value.dtype == dtype:
      return value
    with np.errstate(over="ignore"):
      cast: np.ndarray = value.astype(dtype)
    if self.spec.dtype in _FLOATS:
      is_whole = np.array_equal(
        np.isfinite(cast.astype(np.float64)),
        np.isfinite(value.astype(np.float64)),
      )
    else:
      is_whole = np.array_equal(cast, value)
    if not is_whole:
      raise CheckpointError(
        f"{path}: {self.key} has values that {self.spec.dtype} cannot hold"
      )
    return cast


@dataclasses.dataclass(frozen=True)
class Wishes:
  """What the caller of a restore wants: its arguments of these names."""

  mapping: Mapping[str, str | None] = dataclasses.field(default_factory=dict)
  missing: str = "error"
  same_order: bool = False
  cast: bool = False


@dataclasses.dataclass(eq=False)
class Target:
  """A variable that wants a value.

  Attributes:
    name: What the checkpoint is likely to call it; errors say so, too.
    spec: Its dtype and shape, of the whole if it is partitioned.
    variables: The variable, or the parts of a partitioned one.
    label: What reports call it, if not by its name.
    path: Its path in the objects, which a mapping may have for it, too.
    has_scope: Whether its name shows a scope, as those of objects do not.
    beta: The initial value of a power of Adam; 0 for others, or if unknown.
    source: Where its value comes from; None if nothing was found so far.
    why: How the source was found if not by the name, or why there is none.
    initial: Its initial value; None if that is not known eagerly.
    keys: By object, key of a value for it -> how that was found; '' if by the
      variable's own path.
  """

  name: str
  spec: TensorSpec
  variables: list[Any] = dataclasses.field(default_factory=list)
  label: str = ""
  path: str = ""
  has_scope: bool = True
  beta: float = 0.0
  source: Source | None = None
  why: str = ""
  initial: Any = None
  keys: dict[str, str] = dataclasses.field(default_factory=dict)

  @property
  def own_name(self) -> str:
    return get_name(self.variables[0])

  @property
  def is_decided(self) -> bool:
    return self.source is not None or bool(self.why)

  def take(self, source: Source, why: str = "", cast: bool = False) -> str:
    """Takes a source, unless the value does not fit the variable.

    Integer scalars count something, so both integer dtypes fit. By `cast`,
    floating-point values of another dtype are converted.

    Returns:
      How the value misfits; "" if it fits.
    """
    there, here = source.spec, self.spec
    if None in here.shape and tf.TensorShape(
      self.variables[0].shape
    ).is_compatible_with(there.shape):
      here = here._replace(shape=there.shape)
    if there != here:
      kinds = {there.dtype, here.dtype}
      is_alike = there.shape == here.shape
      if not is_alike or not (
        (kinds <= _COUNTERS and not here.shape) or (cast and kinds <= _FLOATS)
      ):
        hint = "; cast=True converts" * (is_alike and kinds <= _FLOATS)
        return f"{self.name} is {here} but {there} in it{hint}"
      why = why or f"cast from {there.dtype}"
    self.source = dataclasses.replace(source, spec=here)
    self.why = source.why or why
    return ""


def make_target(name: str, variable: Any, **attributes: Any) -> Target:
  """Returns the target of a variable, also of one part of a variable."""
  part = tracking.find_slice(variable)
  shape = tf.TensorShape(part.full_shape if part else variable.shape)
  dims = tuple(shape.as_list()) if shape.rank is not None else (None,)
  spec = TensorSpec(tf.as_dtype(variable.dtype).base_dtype.name, dims)
  beta = _find_beta(variable) if names.is_power(name, spec) else 0.0
  return Target(name, spec, [variable], beta=beta, **attributes)


def list_sources(checkpoint: Checkpoint) -> dict[str, Source]:
  """Returns the tensors of a checkpoint by the names of the variables."""
  keys = names.list_keys(checkpoint)
  return {
    name: Source(key, checkpoint.specs[key]) for name, key in keys.items()
  }


def get_name(variable: Any) -> str:
  """Returns a variable's name; Keras 3's has a path of names."""
  path = getattr(variable, "path", "")
  return str(path or variable.name.split(":")[0])


def _find_beta(variable: Any) -> float:
  """Returns a number from which a graph's variable starts; 0 if unknown."""
  initializer = getattr(variable, "initializer", None)
  inputs = list(getattr(initializer, "inputs", ()))
  # `get_static_value` would forbid to feed the tensor.
  if len(inputs) > 1 and inputs[1].op.type == "Const":
    return float(tf.make_ndarray(inputs[1].op.get_attr("value")))
  return 0.0


def fill(
  session: tf.compat.v1.Session | None,
  checkpoint: Checkpoint,
  targets: Sequence[Target],
  *,
  keys: Collection[str] = (),
  notes: Iterable[str] = (),
  rules: Iterable[tuple[Any, Any]] = (),
) -> Report:
  """Reads the values of all targets, then assigns them.

  All are decided. Those without a source are initialized, or keep their values
  if initial values are not known. Of the keys, the report lists what is unused;
  the rules are further variables and their values, which the report leaves out.
  """
  used = {target.source.key for target in targets if target.source is not None}
  if not any(used):
    reasons = {target.why for target in targets if target.why}
    if not targets:
      reasons = {"no variables were given, or the graph has none"}
    raise CheckpointError(
      f"{checkpoint.prefix}: nothing in it is for what is to be restored: "
      + "; ".join(sorted(reasons))
    )
  report = Report(
    checkpoint.prefix,
    unused=tuple(sorted(set(keys) - used)),
    notes=(*checkpoint.notes, *notes),
  )
  values = [*_read_values(checkpoint, targets), *rules]
  fresh: list[Any] = []
  for target in targets:
    label = target.label or target.name
    if target.source is not None:
      if target.why:
        report.bridged[label] = target.source.key
        report.proofs[label] = target.why
      else:
        report.restored[label] = target.source.key
    elif target.initial is not None or session is not None:
      report.initialized[label] = target.why
      if target.initial is not None:
        values += [(v, target.initial) for v in target.variables]
      else:
        fresh += target.variables
    else:
      report.kept[label] = target.why  # Its initial value is not known.
  if session is None:
    checkpoint.check_current()
    for variable, value in values:
      variable.assign(value)
    return report
  try:
    assignments = session_values.plan(
      (variable, np.asarray(value)) for variable, value in values
    )
    session_values.try_to_initialize(session, fresh, [v for v, _ in values])
  except ValueError as error:
    raise CheckpointError(
      f"{checkpoint.prefix}: nothing was restored: {error}"
    ) from error
  checkpoint.check_current()
  session_values.run(session, assignments)
  try:  # An initial value may be made of a variable that was restored.
    session_values.initialize(session, fresh)
  except ValueError as error:
    raise CheckpointError(
      f"{checkpoint.prefix}: its values were restored, but not all others: "
      f"{error}"
    ) from error
  return report


def _read_values(
  checkpoint: Checkpoint, targets: Iterable[Target]
) -> Iterator[tuple[Any, np.ndarray]]:
  """Yields the variables of targets that have a source, with their values."""
  sliced: list[tuple[Any, Source, str]] = []
  for target in targets:
    for variable in target.variables if target.source is not None else []:
      source, part = target.source, tracking.find_slice(variable)
      assert source is not None
      if part is None or source.value is not None:
        yield variable, source.read(checkpoint)
      else:
        sliced.append((variable, source, part.spec))
  tensors = checkpoint.restore([(s.key, part) for _, s, part in sliced])
  for (variable, source, _), tensor in zip(sliced, tensors):
    yield variable, source.change(tensor.numpy(), checkpoint.prefix)


def check_powers(
  checkpoint: Checkpoint,
  targets: Iterable[Target],
  trusted: Collection[str] | None = (),
) -> None:
  """Refuses powers of Adam that are another optimizer's.

  After n - 1 steps, Adam's power is beta ** n: a whole power of the initial
  value, and the same one for beta1 and beta2. Optimizers of one name that were
  made in another order have equal names. The check only refuses: it does not
  choose, and it says nothing about powers that are near 0 or 1.

  The caller decided on the trusted targets; None if the caller can decide on
  none.
  """
  betas: dict[str, float] = {}
  values: dict[str, float] = {}
  keys: dict[str, str] = {}
  for target in targets:
    name, source = target.name, target.source
    is_trusted = name in (trusted or ())
    if target.beta and source and source.value is None and not is_trusted:
      betas[name], keys[name] = target.beta, source.key
      values[name] = source.read(checkpoint).item()
  wrong = find_wrong_powers(betas, values)
  if not wrong:
    return
  listed = [
    f"{name} ({keys[name]} in it): {why}" for name, why in wrong.items()
  ]
  if trusted is None:
    advice = (
      "Give each optimizer by the name, and with the betas, that it had in the "
      "program that saved it, or restore the other objects alone"
    )
  else:
    kinds = {names.get_base(name) for name in wrong}
    shown = {n: key for n, key in keys.items() if names.get_base(n) in kinds}
    fit = find_fit(betas, {keys[name]: value for name, value in values.items()})
    own = {name: key for name, key in fit.items() if name in shown}
    advice = (
      "Make the optimizers in the order of the program that saved it, or give "
      "the variables of each optimizer by mapping, also its slots of weights "
      "that several train; "
      + f"{show_mapping(own)} fits by the values; " * bool(own)
      + f"{show_mapping(shown)} takes these powers as they are"
    )
  raise CheckpointError(
    f"{checkpoint.prefix}: nothing was restored, since powers in it are "
    f"another optimizer's or of other betas: {'; '.join(shorten(listed))}. "
    f"{advice}"
  )


def find_fit(
  betas: Mapping[str, float], values: Mapping[str, float]
) -> dict[str, str]:
  """Returns power -> the key whose value fits it; {} unless there is one way.

  Both powers of an optimizer stay together.
  """
  ours, theirs = (
    [
      (name, names.get_other_power(name))
      for name in side
      if names.get_base(name) == "beta1_power"
      and names.get_other_power(name) in side
    ]
    for side in (betas, values)
  )
  found = []
  tried = itertools.permutations(theirs, len(ours))
  for order in tried if len(theirs) <= _TRIED else ():
    taken = dict(zip(itertools.chain(*ours), itertools.chain(*order)))
    if not find_wrong_powers(betas, {n: values[k] for n, k in taken.items()}):
      found.append(taken)
  return found[0] if len(found) == 1 else {}


def find_wrong_powers(
  betas: Mapping[str, float], values: Mapping[str, float]
) -> dict[str, str]:
  """Returns the powers that are no optimizer's with these betas -> why.

  Betas are the powers' initial values in the program, and the values are what
  the checkpoint has, in float32.
  """
  steps: dict[str, tuple[float, float]] = {}  # n, and its possible error.
  wrong: dict[str, str] = {}
  for name, value in values.items():
    beta = betas[name]
    # Products below 1e-37 lose digits.
    if not (0 < beta < 1 and 1e-37 < value < 1):
      continue
    count = math.log(value) / math.log(beta)
    error = 1e-3 + 2.0**-23 * (count + 1) / -math.log(beta)
    steps[name] = count, error
    if error < 0.4 and abs(count - max(1, round(count))) > error:
      wrong[name] = f"{value:g} is no whole power of {beta:g}"
  for name, (count, error) in steps.items():
    other = steps.get(names.get_other_power(name))
    if other and abs(count - other[0]) > error + other[1] + 0.5:
      wrong.setdefault(
        name,
        f"{values[name]:g} is power {count:.0f} of {betas[name]:g}, but that "
        f"of the other beta is {other[0]:.0f}",
      )
  return wrong


@dataclasses.dataclass(frozen=True)
class Undecided:
  """Variables for which names do not tell which of the tensors there is theirs.

  `likely` has the pairs, as far as they are known, with None for what the
  checkpoint has too few of; `right_if` says when they are right, and
  `is_in_order` whether same_order=True takes them.
  """

  here: Sequence[str]
  there: Sequence[str]
  likely: Mapping[str, str | None] = dataclasses.field(default_factory=dict)
  right_if: Sequence[str] = (IN_ORDER,)
  is_in_order: bool = True


def make_error(
  path: str,
  what: str,
  problems: Sequence[str],
  undecided: Sequence[Undecided] = (),
) -> CheckpointError:
  """Returns the error for variables without a tensor, or with several."""
  listed = shorten(problems)
  advice = ""
  pairs: dict[str, str | None] = {}
  for each in undecided:
    targets, candidates = (
      ", ".join(shorten(n)) for n in (each.here, each.there)
    )
    listed.append(
      f"names do not tell which of {candidates or 'nothing'} in the checkpoint "
      f"is for {targets}"
    )
    pairs |= dict.fromkeys(each.here, "...") | dict(each.likely)
  if undecided:
    pairs = dict(sorted(pairs.items(), key=lambda pair: pair[1] == "..."))
    advice = f": decide by {show_choice(pairs)}; "
    right_if = dict.fromkeys(text for e in undecided for text in e.right_if)
    option = ", which same_order=True (--same-order) says, too"
    advice += (
      "names do not show the order in which the optimizers were made, so you "
      "must know it"
      if "..." in pairs.values()
      else f"that is right if {', and '.join(right_if)}"
      + option * all(each.is_in_order for each in undecided)
    )
  elif problems:
    advice = (
      " (mapping={here: there} gives a variable another tensor, None "
      "initializes it; missing='initialize' initializes all that is missing)"
    )
  return CheckpointError(f"{path}: {what}: {'; '.join(listed)}{advice}")


def show_mapping(pairs: Mapping[str, str | None]) -> str:
  """Returns the argument `mapping`, to be pasted; ... stands for itself."""
  shown = (
    f"{name!r}: {'...' if key == '...' else repr(key)}"
    for name, key in pairs.items()
  )
  return f"mapping={{{', '.join(shown)}}}"


def show_choice(pairs: Mapping[str, str | None]) -> str:
  """Returns a mapping for a program and for the command line."""
  maps = " ".join(show_map(n, key) for n, key in pairs.items() if key)
  return f"{show_mapping(pairs)} or, on the command line, by {maps}"


def show_map(here: str, there: str) -> str:
  """Returns the option --map of the command line, quoted for a shell."""
  escaped = [
    name.replace("\\", "\\\\").replace("=", "\\=") for name in (here, there)
  ]
  return shlex.join(["--map", "=".join(escaped)])


def suggest(name: str, known: Iterable[str], fits: Collection[str] = ()) -> str:
  """Returns a hint at similar names, those in `fits` first."""
  # The time to compare names grows with their number and both lengths.
  last = names.get_base(name)
  near = [n for n in known if len(n) < 200]
  if len(near) > _COMPARED:
    near = [n for n in near if names.get_base(n) == last][:_COMPARED]
  same = [n for n in near if n.lower() == name.lower()]
  close = same or difflib.get_close_matches(name[:200], near, 9, 0.5)
  close = sorted(close, key=lambda other: other not in fits)[:3]
  return f" (nearest: {', '.join(close)})" if close else ""

# SPDX-License-Identifier: Apache-2.0
"""Recognizes the loss scalers of other systems in checkpoints by name.

    system             variables of the loss scale, in a scope SCOPE
    tf_cnn_benchmarks  loss_scale, loss_scale_normal_steps (int32)
    OpenSeq2Seq        Backoff: SCOPE/Variable (int64, iteration), then _1
                       (int64, the last overflow's iteration), _2 (the scale)
                       LogMax: SCOPE/Variable (int64, iteration), then
                       float32: _1 the scale, _2 to _6 averages and powers
    OpenNMT-tf 1.x     the same; its scope is `optim`
    THUMT              scale, iter or iter_1, rescale_iter, overflow_iter,
                       overflow

OpenSeq2Seq's variables have no names, so TensorFlow numbers them, and other
variables without names shift the numbers. Only the MetaGraph beside the
checkpoint proves which is which, or the user says so. The other names are
proven by their dtypes and by each other, unless the MetaGraph shows another
use.

OpenSeq2Seq trains a float32 copy of each float16 weight W, its master, which is
called `SCOPE/FP32-master-copy/W`.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
import dataclasses
from typing import Literal
from typing import TypeAlias

from tf_compat_lossscale._core import wrong_values
from tf_compat_lossscale.checkpoint.files.checkpoint_error import (
  CheckpointError,
)
from tf_compat_lossscale.checkpoint.files.entries import TensorSpec
from tf_compat_lossscale.checkpoint.layouts import names
from tf_compat_lossscale.checkpoint.layouts.scaler_graphs import Constants
from tf_compat_lossscale.checkpoint.layouts.scaler_graphs import ScalerGraph

TF_CNN = "tf_cnn_benchmarks"
SEQ2SEQ = "OpenSeq2Seq"
NMT = "OpenNMT-tf 1.x"
THUMT = "THUMT"
BACKOFF, LOG_MAX = "Backoff", "LogMax"
MASTERS = "FP32-master-copy"
_PROVEN = "the MetaGraph shows its rule"
# The systems by the names that users give.
Like: TypeAlias = Literal[
  "openseq2seq", "opennmt-tf", "tf_cnn_benchmarks", "thumt"
]
LIKE: dict[str, str] = {
  "openseq2seq": SEQ2SEQ,
  "opennmt-tf": NMT,
  "tf_cnn_benchmarks": TF_CNN,
  "thumt": THUMT,
}
_FLOAT, _INT, _LONG = (
  TensorSpec(dtype, ()) for dtype in ("float32", "int32", "int64")
)
_UNNAMED = "Variable"
# Roles of variables, in the order of creation, with their dtypes.
_ROLES: dict[str, dict[str, TensorSpec]] = {
  BACKOFF: {"iteration": _LONG, "last_overflow": _LONG, "scale": _FLOAT},
  LOG_MAX: {
    "iteration": _LONG,
    "scale": _FLOAT,
    "x_hat": _FLOAT,
    "slow_x_hat": _FLOAT,
    "xsquared_hat": _FLOAT,
    "b1_correction": _FLOAT,
    "b2_correction": _FLOAT,
  },
}
_TF_CNN_NAMES = {
  "scale": ("loss_scale", _FLOAT),
  "good_steps": ("loss_scale_normal_steps", _INT),
}
_THUMT_NAMES = {
  "scale": ("scale", _FLOAT),
  "iteration": ("iter", _INT),
  "last_change": ("rescale_iter", _INT),
  "last_overflow": ("overflow_iter", _INT),
  "overflows": ("overflow", _INT),
}


@dataclasses.dataclass(frozen=True)
class Scaler:
  """A loss scaler of another system.

  Attributes:
    system: The system.
    kind: BACKOFF or LOG_MAX of OpenSeq2Seq; else "".
    names: Role -> the variable's name in the checkpoint.
    constants: The constants of its rule.
    proof: How the variables were found.
  """

  system: str
  kind: str
  names: dict[str, str]
  constants: Constants
  proof: str

  @property
  def scope(self) -> str:
    """The scope of the scale, with its slash, or an empty string."""
    return names.split_scope(self.names["scale"])[0]

  @property
  def title(self) -> str:
    """The system and the kind of the scaler."""
    return f"{self.system} ({self.kind})" if self.kind else self.system


@dataclasses.dataclass(frozen=True)
class Foreign:
  """All that is of other systems in a checkpoint.

  Attributes:
    scaler: The loss scaler; None if none is proven.
    masters: float16 weight -> its float32 master.
    hints: Sentences on variables that may be a scaler's, without a proof.
  """

  scaler: Scaler | None = None
  masters: dict[str, str] = dataclasses.field(default_factory=dict)
  hints: tuple[str, ...] = ()

  def __bool__(self) -> bool:
    return bool(self.scaler or self.masters)

  @property
  def system(self) -> str:
    """The system."""
    if self.scaler:
      return self.scaler.system
    master = next(iter(self.masters.values()), "")
    return _name_system(master.rpartition(f"{MASTERS}/")[0])

  @property
  def title(self) -> str:
    """The system, and the kind of its scaler if that is known."""
    return self.scaler.title if self.scaler else self.system


# Returns the graph beside a checkpoint, and the names in the checkpoint of each
# of the graph's variables; None if there is none.
FindGraph = Callable[[], tuple[ScalerGraph, Mapping[str, set[str]]] | None]


def find_foreign(
  tensors: Mapping[str, TensorSpec],
  find_graph: FindGraph,
  like: str | None = None,
) -> Foreign:
  """Finds the loss scaler and the masters of another system.

  Args:
    tensors: Name -> dtype and shape.
    find_graph: Reads the graph; called if names may be a scaler's.
    like: The system, as the user says; a key of LIKE. Then names decide if
      no graph shows its rule.

  Returns:
    What was found.

  Raises:
    CheckpointError: `like` is unknown, or the checkpoint has no such scaler, or
      several.
  """
  if like is not None and like not in LIKE:
    raise CheckpointError(
      f"like={like!r} is no system; there are {', '.join(LIKE)}"
      f"{wrong_values.suggest(like, LIKE)}"
    )
  masters = find_masters(tensors)
  runs = {kind: list(_find_runs(tensors, kind)) for kind in _ROLES}
  named = {
    system: found
    for system, found in (
      (TF_CNN, _match_names(tensors, _TF_CNN_NAMES)),
      (THUMT, _find_thumt(tensors)),
    )
    if found
  }
  may_be_unnamed = _has_unnamed(tensors)
  if not named and not may_be_unnamed:
    if like is not None:
      raise _make_error(like, "it has no variables of such a loss scale")
    return Foreign(None, masters)
  graph = find_graph()
  found = []
  if graph is not None:
    found = [
      *_prove_named(named, *graph),
      *_prove_backoff(tensors, *graph),
      *_prove_log_max(tensors, *graph),
    ]
  else:
    found = [_take_named(system, each) for system, each in named.items()]
  wanted = LIKE.get(like or "")
  if wanted in (SEQ2SEQ, NMT):
    found = [each for each in found if each.system in (SEQ2SEQ, NMT)]
    if not found:
      found = [_decide_unnamed(runs, like or "", wanted, masters)]
  elif wanted:
    found = [each for each in found if each.system == wanted]
    if not found and wanted not in named:
      raise _make_error(like or "", "it has no variables of such a loss scale")
    found = found or [_take_named(wanted, named[wanted])]
  own = [
    scale.names[0]
    for scale in names.find_scales(tensors).known
    if not any({*scale.names} & {*each.names.values()} for each in found)
  ]
  hints: tuple[str, ...] = ()
  if found and own and like is not None:
    raise _make_error(like, f"it has another loss scale, {', '.join(own)}")
  if not found:
    if graph is None or masters:
      hints = tuple(_make_hints(runs, masters, graph is not None))
  elif len(found) + len(own) > 1:
    listed = " and ".join(
      [*(f"{each.title} ({each.names['scale']})" for each in found), *own]
    )
    hints = (f"it has the variables of several loss scales: {listed}",)
    found = []
  return Foreign(found[0] if found else None, masters, hints)


def refuse_like(like: str | None, path: str) -> None:
  """Raises CheckpointError if `like` is given for a checkpoint of objects."""
  if like is not None:
    raise CheckpointError(
      f"{path}: like={like!r} is for checkpoints of variables by name, which "
      "this one is not"
    )


def find_masters(tensors: Mapping[str, TensorSpec]) -> dict[str, str]:
  """Finds OpenSeq2Seq's masters: float16 weight -> float32 master.

  The name alone is no proof: a float16 variable of the rest of the name must
  have the same shape.
  """
  found: dict[str, str] = {}
  for name, spec in tensors.items():
    scope, mark, weight = name.rpartition(f"{MASTERS}/")
    if not mark or (scope and not scope.endswith("/")):
      continue
    if spec.dtype != "float32":
      continue
    if tensors.get(weight) == TensorSpec("float16", spec.shape):
      found[weight] = name
  return found


def _make_error(like: str, why: str) -> CheckpointError:
  return CheckpointError(f"like={like!r}: {why}")


def _match_names(
  tensors: Mapping[str, TensorSpec],
  wanted: Mapping[str, tuple[str, TensorSpec]],
) -> dict[str, str] | None:
  """Returns role -> name, if all names exist with their dtypes."""
  for name, spec in wanted.values():
    if tensors.get(name) != spec:
      return None
  return {role: name for role, (name, _) in wanted.items()}


def _find_thumt(tensors: Mapping[str, TensorSpec]) -> dict[str, str] | None:
  """Returns the names of THUMT's variables.

  With gradient accumulation, `iter` counts micro-batches, and `iter_1` steps.
  """
  found = _match_names(tensors, _THUMT_NAMES)
  accumulates = any(name.endswith("/MultiStepOptimizer") for name in tensors)
  if found and accumulates and tensors.get("iter_1") == _INT:
    found["iteration"] = "iter_1"
  return found


def _has_unnamed(tensors: Mapping[str, TensorSpec]) -> bool:
  """Returns whether some scope has both kinds of scalars without names."""
  kinds: dict[str, set[str]] = {}
  for name, spec in tensors.items():
    if spec in (_FLOAT, _LONG) and names.get_base(name) == _UNNAMED:
      kinds.setdefault(names.split_scope(name)[0], set()).add(spec.dtype)
  return any(len(found) == 2 for found in kinds.values())


def _find_runs(
  tensors: Mapping[str, TensorSpec], kind: str
) -> Iterator[dict[str, str]]:
  """Yields consecutive variables without names that have the dtypes of a kind.

  Yields:
    Role -> name.
  """
  by_scope: dict[str, dict[int, TensorSpec]] = {}
  for name, spec in tensors.items():
    scope, last = names.split_scope(name)
    base, number = names.split_number(last)
    if base == _UNNAMED:
      by_scope.setdefault(scope, {})[number] = spec
  roles = _ROLES[kind]
  for scope, numbered in by_scope.items():
    for first in sorted(numbered):
      if all(
        numbered.get(first + i) == spec for i, spec in enumerate(roles.values())
      ):
        yield {
          role: scope + names.add_number(_UNNAMED, first + i)
          for i, role in enumerate(roles)
        }


def _name_system(scope: str) -> str:
  """Returns the system that makes its scaler in a scope."""
  return NMT if scope.rstrip("/").split("/")[-1] == "optim" else SEQ2SEQ


def _take_named(system: str, found: dict[str, str]) -> Scaler:
  """Returns a scaler that has names of its own, without a graph."""
  return Scaler(system, "", found, Constants(), "by names and dtypes")


def _get_key(keys: Mapping[str, set[str]], variable: str | None) -> str:
  """Returns the name in the checkpoint of a graph's variable; "" if unclear."""
  known = keys.get(variable or "", set())
  return next(iter(known)) if len(known) == 1 else ""


def _prove_named(
  named: Mapping[str, dict[str, str]],
  graph: ScalerGraph,
  keys: Mapping[str, set[str]],
) -> Iterator[Scaler]:
  """Yields the scalers with names of their own that a graph proves."""
  variables = {key: op for op, found in keys.items() for key in found}
  for system, found in named.items():
    rule = graph.find_rule(variables.get(found["scale"], ""))
    if rule is None:
      continue  # The user's own variables are called so.
    falls, constants = rule
    found = dict(found)
    limit = None
    if system == TF_CNN:
      period = graph.find_period(
        falls,
        lambda each: each.last is None
        and each.iteration not in graph.miscounted
        and _get_key(keys, each.iteration) == named[TF_CNN]["good_steps"],
      )
    else:
      period = graph.find_period(
        falls,
        lambda each: _get_key(keys, each.last) == named[THUMT]["last_overflow"],
      )
      if period:
        found["iteration"] = _get_key(keys, period.iteration)
      limits = [
        each.limit
        for each in graph.tolerances
        if _get_key(keys, each.overflows) == found["overflows"]
      ]
      limit = limits[0] if len(limits) == 1 else None
    if period is None or not all(found.values()):
      continue
    constants = constants._replace(window=period.window, tolerance=limit)
    yield Scaler(system, "", found, constants, _PROVEN)


def _prove_backoff(
  tensors: Mapping[str, TensorSpec],
  graph: ScalerGraph,
  keys: Mapping[str, set[str]],
) -> Iterator[Scaler]:
  """Yields OpenSeq2Seq's Backoff scalers that a graph proves."""
  for variable in graph.updates:
    rule = graph.find_rule(variable)
    if rule is None:
      continue
    falls, constants = rule
    period = graph.find_period(falls, lambda each: each.last is not None)
    if period is None or period.iteration not in graph.counted:
      continue
    found = {
      "iteration": _get_key(keys, period.iteration),
      "last_overflow": _get_key(keys, period.last),
      "scale": _get_key(keys, variable),
    }
    if _are_unnamed(found, tensors, BACKOFF):
      system = _name_system(names.split_scope(found["scale"])[0])
      constants = constants._replace(window=period.window)
      yield Scaler(system, BACKOFF, found, constants, _PROVEN)


def _are_unnamed(
  found: Mapping[str, str], tensors: Mapping[str, TensorSpec], kind: str
) -> bool:
  """Returns whether variables have no names of their own, and their dtypes."""
  return all(
    names.get_base(name) == _UNNAMED and tensors.get(name) == spec
    for name, spec in zip(found.values(), _ROLES[kind].values())
  )


def _prove_log_max(
  tensors: Mapping[str, TensorSpec],
  graph: ScalerGraph,
  keys: Mapping[str, set[str]],
) -> Iterator[Scaler]:
  """Yields OpenSeq2Seq's LogMax scalers that a graph proves."""
  runs = list(_find_runs(tensors, LOG_MAX))
  scales = {found["scale"] for found in runs}
  variables = {v for v, found in keys.items() if scales & found}
  for power in graph.find_powers(variables):
    origins = {_get_key(keys, origin) for origin in power.origins}
    scale = _get_key(keys, power.variable)
    for found in runs:
      averages = set(found.values()) - {found["iteration"], found["scale"]}
      if found["scale"] == scale and origins >= averages:
        system = _name_system(names.split_scope(scale)[0])
        constants = Constants(
          lower=power.lower, upper=power.upper, are_known=True
        )
        yield Scaler(system, LOG_MAX, found, constants, _PROVEN)


def _decide_unnamed(
  runs: Mapping[str, list[dict[str, str]]],
  like: str,
  system: str,
  masters: Mapping[str, str],
) -> Scaler:
  """Returns the scaler among variables without names, as the user says."""
  candidates = [(kind, found) for kind in runs for found in runs[kind]]
  scopes = {name.rpartition(f"{MASTERS}/")[0] for name in masters.values()}
  beside = [
    (kind, found)
    for kind, found in candidates
    if names.split_scope(found["scale"])[0] in scopes
  ]
  candidates = beside or candidates  # Masters are in the scaler's scope.
  if len(candidates) != 1:
    listed = "; ".join(", ".join(found.values()) for _, found in candidates)
    raise _make_error(
      like,
      f"several groups of variables may be its loss scale's: {listed}; the "
      "MetaGraph (the '.meta' file) beside the checkpoint would be a proof, or "
      "map current_loss_scale to one"
      if candidates
      else "no variables without names (Variable, Variable_1, …) have the "
      "dtypes of Backoff (int64, int64, float32) or LogMax (int64, then six of "
      "float32) in a row",
    )
  ((kind, found),) = candidates
  return Scaler(system, kind, found, Constants(), f"like={like!r}")


def _make_hints(
  runs: Mapping[str, list[dict[str, str]]],
  masters: Mapping[str, str],
  has_graph: bool,
) -> Iterator[str]:
  """Yields sentences on variables that may be a scaler's."""
  advice = "say --like=openseq2seq"
  if not has_graph:
    advice = f"put the MetaGraph, the '.meta' file, beside it, or {advice}"
  for kind, found in runs.items():
    for each in found:
      # Unnamed scalars are common. Masters make OpenSeq2Seq likely.
      listed = ", ".join(each.values())
      likely = "are probably" if masters else "may be"
      yield (
        f"{listed} {likely} OpenSeq2Seq's or OpenNMT-tf's {kind}, but nothing "
        f"proves it: {advice}"
      )

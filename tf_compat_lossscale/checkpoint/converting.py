# SPDX-License-Identifier: Apache-2.0
"""Converts checkpoints between the layouts of releases and APIs."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
import dataclasses
import functools
import os
import typing
from typing import Any
from typing import TypeAlias

import numpy as np

from tf_compat_lossscale._core import arguments
from tf_compat_lossscale._core import wrong_values
from tf_compat_lossscale.checkpoint import exporting
from tf_compat_lossscale.checkpoint import paths
from tf_compat_lossscale.checkpoint.files import consistency
from tf_compat_lossscale.checkpoint.files import weight_files
from tf_compat_lossscale.checkpoint.files import writer
from tf_compat_lossscale.checkpoint.files.bundle import Bundle
from tf_compat_lossscale.checkpoint.files.bundle import OBJECT_GRAPH
from tf_compat_lossscale.checkpoint.files.checkpoint_error import (
  CheckpointError,
)
from tf_compat_lossscale.checkpoint.files.object_graph import ObjectGraph
from tf_compat_lossscale.checkpoint.files.values import Literal
from tf_compat_lossscale.checkpoint.files.values import Source
from tf_compat_lossscale.checkpoint.files.values import Sources
from tf_compat_lossscale.checkpoint.files.values import Stored
from tf_compat_lossscale.checkpoint.layouts import by_name
from tf_compat_lossscale.checkpoint.layouts import by_object
from tf_compat_lossscale.checkpoint.layouts import evidence
from tf_compat_lossscale.checkpoint.layouts import names
from tf_compat_lossscale.checkpoint.layouts import policy_weights
from tf_compat_lossscale.checkpoint.layouts import slots_by_name
from tf_compat_lossscale.checkpoint.layouts import templates
from tf_compat_lossscale.checkpoint.layouts.inventory import Inventory
from tf_compat_lossscale.checkpoint.layouts.match import Wishes
from tf_compat_lossscale.checkpoint.layouts.scale_bridges import make_new_scale
from tf_compat_lossscale.checkpoint.report import Conversion

Layout: TypeAlias = typing.Literal[
  "saver",
  "saver-v2",
  "contrib",
  "object",
  "keras2",
  "fp32",
  "weights",
  "npz",
  "safetensors",
]
LAYOUTS = typing.get_args(Layout)
# The layouts for which a template of an object-based source has names.
_TEMPLATES_BY_NAME = ("saver", "saver-v2")
_INITIAL = 2.0**15  # The default of DynamicLossScale.
_Progress = Callable[[int], None]


def convert(
  source: str | os.PathLike[str],
  destination: str | os.PathLike[str],
  to: Layout,
  *,
  set_loss_scale: float | None = None,
  reset: bool = False,
  template: str | os.PathLike[str] | None = None,
  mapping: Mapping[str, str] | None = None,
  learning_rate: float | None = None,
  overwrite: bool = False,
  progress: Callable[[int], _Progress] | None = None,
  masters: bool = False,
  averages: bool = False,
  include: Sequence[str] = (),
  exclude: Sequence[str] = (),
  dry_run: bool = False,
) -> Conversion:
  """Writes a new checkpoint from another one, in another layout.

  Tensors are copied byte by byte, and the copies are compared with their
  checksums. The source is never changed; if another process overwrites it
  meanwhile, the conversion starts again. The destination appears whole or not
  at all.

  Args:
    source: A checkpoint, as `describe` takes it.
    destination: The new checkpoint's prefix; for 'npz' and 'safetensors' the
      new file.
    to: The layout. 'saver' and 'saver-v2' name variables as `compat.v1` does
      under TensorFlow 1's and 2's control flow, 'contrib' as tf.contrib did.
      'object' is for `tf.train.Checkpoint`, and 'keras2' for that of a model
      of Keras 2.3 or later. 'fp32' is the source without its loss scales.
      'weights', 'npz' and 'safetensors' have the model's tensors alone,
      without slots, powers, averages, loss scales and steps, by name: as a
      checkpoint that any Saver restores, or as one file.
    set_loss_scale: The new value of every loss scale, whose counters become 0.
      If the source has no loss scale, one is added.
    reset: Sets the loss scales to 32768, the default of DynamicLossScale.
    template: A checkpoint that the program to go on wrote. For 'object' and
      'keras2' it is object-based, and its object graph is used; they need one
      if the source names variables. For 'saver' and 'saver-v2' of an
      object-based source it is by name, of a program of TensorFlow 1 whose
      optimizer takes over from Keras's; keep the MetaGraph beside it.
    mapping: New name -> name in the source. It decides if nothing proves which
      of several variables gets a name.
    learning_rate: The learning rate with which training goes on, positive.
      The momentum of Keras's SGD is that of `MomentumOptimizer` times this
      rate. By default it is the template's, or else the MetaGraph's.
    overwrite: Whether the destination may be replaced.
    progress: Called with the number of bytes to read and write. It returns a
      function that is called with each number of bytes read or written.
    masters: Whether float32 masters take the place of float16 weights. This and
      the next three are for 'weights', 'npz' and 'safetensors'.
    averages: Whether moving averages take the place of weights.
    include: Patterns of a shell, such as 'bert/encoder/*', of which the name of
      a tensor must match one; all are kept if there is none. A star matches
      slashes, too.
    exclude: Patterns, of which the name of a tensor may match none.
    dry_run: Whether nothing is written, so that the result alone tells what
      would be.

  Returns:
    The result.

  Raises:
    CheckpointError: The source cannot be converted. Nothing was written.
  """
  if to not in LAYOUTS:
    raise CheckpointError(
      f"{to!r} is no layout; there are {', '.join(LAYOUTS)}"
      f"{wrong_values.suggest(to, LAYOUTS)}"
    )
  choice = exporting.Choice(masters, averages, include, exclude)
  exporting.check_options(
    to,
    choice,
    {
      "set_loss_scale": set_loss_scale is not None,
      "reset": reset,
      "template": template is not None,
      "mapping": mapping,
      "learning_rate": learning_rate is not None,
    },
  )
  scale = _check_scale(set_loss_scale, reset)
  if scale is not None and to == "fp32":
    raise CheckpointError("fp32 has no loss scale that could be set")
  rate = _check_rate(learning_rate, template is not None)
  path = os.fspath(destination)
  writer.check_destination(path)
  advance: list[_Progress] = []

  def attempt(bundle: Bundle, model: Bundle | None = None) -> Conversion:
    changed: list[str] = []
    notes: list[str] = []
    facts: dict[str, Any] = {}
    sources: Mapping[str, Source]
    try:
      if to in exporting.LAYOUTS:
        sources, facts = exporting.plan(bundle, path, to, choice)
      else:
        sources, changed, notes = _plan(
          bundle, to, scale, model, mapping or {}, rate
        )
    except CheckpointError:
      raise
    except ValueError as error:
      raise CheckpointError(f"{bundle.prefix}: {error}") from None
    if not advance:  # This is the first try.
      size = 2 * bundle.size
      if to in exporting.LAYOUTS:
        size = sum(source.size for source in sources.values())
        size *= 1 if to in weight_files.FORMATS else 2
      advance.append(progress(size) if progress else lambda size: None)
    write(sources, advance[0])
    result = _summarize(path, bundle, sources, changed, notes)
    return dataclasses.replace(result, **facts)

  def attempt_with_template(bundle: Bundle) -> Conversion:
    takes_names = OBJECT_GRAPH in bundle.specs and to in _TEMPLATES_BY_NAME
    if to not in ("object", "keras2") and not takes_names:
      raise CheckpointError(
        f"{bundle.prefix}: {to} names variables, so it needs no template"
      )
    return consistency.read_consistently(
      lambda: paths.find(os.fspath(template or "")).path,
      lambda model: attempt(bundle, model),
    )

  with _open_destination(path, to, overwrite, dry_run) as (write, publish):
    result = consistency.read_consistently(
      lambda: paths.find(os.fspath(source)).path,
      attempt if template is None else attempt_with_template,
    )
    left = publish()
  return dataclasses.replace(result, left=left)


@contextlib.contextmanager
def _open_destination(
  path: str, to: str, overwrite: bool, dry_run: bool
) -> Iterator[
  tuple[
    Callable[[Mapping[str, Any], _Progress], None],
    Callable[[], tuple[str, ...]],
  ]
]:
  """Opens the new checkpoint or file, which must be free.

  Yields:
    A function that writes tensors, and one that lets them appear; it returns
    the files of the replaced checkpoint that could not be removed.
  """
  if to in weight_files.FORMATS:
    weight_files.check(path, to, overwrite)
  elif dry_run:
    writer.check_free(path, overwrite)
  if dry_run:
    yield lambda sources, progress: None, tuple
  elif to in weight_files.FORMATS:
    with writer.replacing(path, overwrite) as file:
      yield functools.partial(weight_files.write, file, to), tuple
  else:
    with writer.reserve(path, overwrite) as new:
      yield new.write, new.publish


def _check_scale(set_loss_scale: float | None, reset: bool) -> float | None:
  """Returns the loss scale to set; None if there is none."""
  if set_loss_scale is None:
    return _INITIAL if reset else None
  if reset:
    raise CheckpointError("reset and set_loss_scale exclude each other")
  try:
    return arguments.check_scale("set_loss_scale", set_loss_scale)
  except ValueError as error:
    raise CheckpointError(str(error)) from None


def _check_rate(learning_rate: float | None, is_used: bool) -> float | None:
  """Returns the learning rate, if it is a positive number.

  Raises:
    CheckpointError: It is not, or nothing depends on it.
  """
  if learning_rate is None:
    return None
  if not is_used:
    raise CheckpointError(
      f"learning_rate is {learning_rate}, but only slots that fill a template "
      "depend on it: leave it out"
    )
  is_number = isinstance(learning_rate, (int, float, np.number))
  if not is_number or not 0 < learning_rate < float("inf"):
    raise CheckpointError(
      f"learning_rate is {learning_rate!r}, but must be a positive number"
    )
  return float(learning_rate)


def _plan(
  bundle: Bundle,
  to: str,
  scale: float | None,
  template: Bundle | None,
  mapping: Mapping[str, str],
  learning_rate: float | None,
) -> tuple[Sources, list[str], list[str]]:
  """Returns the new checkpoint's tensors, the names of those set, and notes."""
  objects = OBJECT_GRAPH in bundle.specs
  if to in ("object", "keras2") and not objects and template is None:
    raise CheckpointError(
      f"{bundle.prefix}: it names variables, not objects, and nothing tells "
      "the object graph: give a template, an object-based checkpoint of the "
      "same model"
    )
  if objects and template is None and to in ("object", "keras2", "fp32"):
    if mapping:
      raise CheckpointError(
        f"{bundle.prefix}: {to} keeps all names, so it takes no mapping"
      )
    if to == "object":
      sources = by_object.copy_all(bundle)
    elif to == "keras2":
      _, sources = by_object.flatten_keras(bundle)
    else:
      sources = by_object.remove_scales(bundle)
    return sources, _set_in_objects(sources, bundle, scale, to), []
  variables = by_object.list_by_name(bundle)
  inventory = Inventory(
    {name: source.spec for name, source in variables.items()},
    lambda: evidence.find_evidence(bundle),
  )
  changed = _set_scales(variables, inventory, scale, bundle.prefix)
  if template is not None and to in _TEMPLATES_BY_NAME:
    filled, notes = _fill_names(
      variables, bundle, template, mapping, learning_rate
    )
    return filled, changed, notes
  if template is not None:
    if inventory.scales.incomplete:
      inventory.gather_evidence()
      inventory.complete_scales(variables, are_known=True)
    new = templates.fill_template(
      variables,
      inventory,
      template,
      mapping,
      learning_rate,
      is_keras=to == "keras2",
    )
    return new.sources, changed, list(new.notes)
  api = {"contrib": names.CONTRIB, "fp32": None}.get(to, names.COMPAT)
  flow = "v1" if to in ("saver", "contrib") else "v2"
  return (
    by_name.rename_variables(
      variables, inventory, api, flow, bundle.prefix, mapping
    ),
    changed,
    [],
  )


def _fill_names(
  variables: Sources,
  bundle: Bundle,
  template: Bundle,
  mapping: Mapping[str, str],
  learning_rate: float | None,
) -> tuple[Sources, list[str]]:
  """Fills the names of a program of TensorFlow 1 with a checkpoint by object.

  Args:
    variables: Name -> tensor, of the checkpoint by object.
    bundle: That checkpoint.
    template: A checkpoint by name that the program wrote.
    mapping: Name in the template -> name in `variables`.
    learning_rate: The learning rate with which training goes on, if the caller
      says it.

  Returns:
    Name -> source, and what the user should know.
  """
  if OBJECT_GRAPH in template.specs:
    raise CheckpointError(
      f"{template.prefix}: a template for names must be a checkpoint by name, "
      "of tf.train.Saver; this one is object-based"
    )
  here = Inventory(
    dict(template.specs), lambda: evidence.find_evidence(template)
  )
  match = slots_by_name.match_names(
    here, variables, bundle, Wishes(mapping, learning_rate=learning_rate)
  )
  initial = {name: Stored(template, name) for name in match.initialized}
  found = match.initialized | match.proofs
  notes = [f"{name}: {why}" for name, why in sorted(found.items())]
  return match.sources | initial, notes


def _set_scales(
  variables: Sources,
  inventory: Inventory,
  value: float | None,
  path: str,
) -> list[str]:
  """Sets every loss scale, adds one if there is none, and returns the names."""
  if value is None:
    return []
  if inventory.scales.unclear or inventory.scales.incomplete:
    inventory.gather_evidence()
  inventory.complete_scales(variables, are_known=True)
  scales, unclear, *_ = inventory.scales
  if unclear:
    raise CheckpointError(
      f"{path}: nothing proves which of {', '.join(sorted(unclear))} are a "
      "loss scale's, since there are more of one kind than of another: put the "
      "MetaGraph, the '.meta' file, beside it"
    )
  if not scales:
    base = tuple(names.SCALE_TENSORS[names.COMPAT])
    scales = [names.ScaleNames(names.COMPAT, "", base)]
    taken = sorted(set(base) & set(variables))
    if taken:
      raise CheckpointError(
        f"{path}: it has no loss scale, and none can be added: the model has a "
        f"variable of its own that is called {taken[0]}"
      )
    inventory.tensors |= names.SCALE_TENSORS[names.COMPAT]
    inventory.has_new_scale = True
  changed: list[str] = []
  for scale in scales:
    variables.update(zip(scale.names, make_new_scale(value, scale.api)))
    changed += scale.names
  further = policy_weights.find_further(inventory.tensors, scales)
  for members in further.values():
    variables.update(policy_weights.make_new(members.values()))
    changed += members.values()
  return changed


def _set_in_objects(
  sources: Sources, bundle: Bundle, scale: float | None, to: str
) -> list[str]:
  """Sets every loss scale of objects, and returns the keys."""
  if scale is None:
    return []
  graph = ObjectGraph.read(bundle)
  keys = by_object.find_scale_keys(graph)
  if not keys:
    raise CheckpointError(
      f"{bundle.prefix}: no optimizer in it has a dynamic loss scale that "
      "could be set"
    )
  changed = []
  for key, base in keys.items():
    key = by_object.flatten_key(key) if to == "keras2" else key
    if key not in sources or sources[key].spec.shape:
      raise CheckpointError(
        f"{bundle.prefix}: it is damaged: its object graph says that {key} is "
        "a loss scale's number, which is not in it"
      )
    dtype = sources[key].spec.dtype
    is_scale = base in by_object.SCALE_CHILDREN
    sources[key] = Literal(dtype, scale if is_scale else 0)
    changed.append(key)
  return changed


def _summarize(
  destination: str,
  bundle: Bundle,
  sources: Mapping[str, Source],
  changed: list[str],
  notes: list[str],
) -> Conversion:
  """Compares the new checkpoint with the source."""
  origins = {
    name: source.origin
    for name, source in sources.items()
    if source.origin in bundle.specs
    and getattr(source, "bundle", bundle) is bundle
  }
  used = set(origins.values())
  return Conversion(
    path=destination,
    renamed={new: old for new, old in origins.items() if new != old},
    dropped=tuple(
      name
      for name in bundle.specs
      if name not in used and name not in sources and name != OBJECT_GRAPH
    ),
    added=tuple(
      name
      for name in sources
      if name not in origins
      and name not in bundle.specs
      and name != OBJECT_GRAPH
    ),
    changed=tuple(name for name in changed if name in sources),
    notes=tuple(notes),
    sizes={name: bundle.get_size(name) for name in bundle.specs},
    written={name: source.spec for name, source in sources.items()},
    written_sizes={name: source.size for name, source in sources.items()},
  )

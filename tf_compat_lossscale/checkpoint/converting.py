"""Converts checkpoints between the layouts of releases and APIs."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Mapping
import concurrent.futures
import dataclasses
import os
import threading

from tf_compat_lossscale._core import arguments
from tf_compat_lossscale.checkpoint import description as kinds
from tf_compat_lossscale.checkpoint import paths
from tf_compat_lossscale.checkpoint.files import writer as writing
from tf_compat_lossscale.checkpoint.files.bundle import Bundle
from tf_compat_lossscale.checkpoint.files.bundle import OBJECT_GRAPH
from tf_compat_lossscale.checkpoint.files.errors import CheckpointError
from tf_compat_lossscale.checkpoint.files.object_graph import ObjectGraph
from tf_compat_lossscale.checkpoint.files.sources import Literal
from tf_compat_lossscale.checkpoint.layouts import by_name
from tf_compat_lossscale.checkpoint.layouts import by_object
from tf_compat_lossscale.checkpoint.layouts import evidence
from tf_compat_lossscale.checkpoint.layouts import names
from tf_compat_lossscale.checkpoint.layouts.inventory import Inventory
from tf_compat_lossscale.checkpoint.layouts.sources import get_origin
from tf_compat_lossscale.checkpoint.layouts.sources import make_new_scale
from tf_compat_lossscale.checkpoint.layouts.sources import Sources

LAYOUTS = ("saver", "saver-v2", "contrib", "object", "keras2", "fp32")
_INITIAL = 2.0**15  # What DynamicLossScale starts from by default.
_Progress = Callable[[int], None]


@dataclasses.dataclass(frozen=True)
class Conversion:
  """What was written.

  Attributes:
    path: The new checkpoint's prefix.
    renamed: The name there -> the name in the source, where they differ.
    dropped: What the source has and the layout has no place for.
    added: What the source has not; its value was made up.
    changed: Loss scales and counters that were set.
  """

  path: str
  renamed: dict[str, str]
  dropped: tuple[str, ...]
  added: tuple[str, ...]
  changed: tuple[str, ...]


def convert(
  source: str | os.PathLike[str],
  destination: str | os.PathLike[str],
  to: str,
  *,
  set_loss_scale: float | None = None,
  reset: bool = False,
  template: str | os.PathLike[str] | None = None,
  mapping: Mapping[str, str] | None = None,
  overwrite: bool = False,
  progress: Callable[[int], _Progress] | None = None,
) -> Conversion:
  """Writes a checkpoint anew, in another layout.

  Tensors are copied byte by byte, and compared with their checksums. The
  source is never changed; the destination appears whole or not at all.

  Args:
    source: A checkpoint, as `describe` takes it.
    destination: The new checkpoint's prefix.
    to: 'saver' and 'saver-v2' are variables by name, as `compat.v1` calls them
      under TensorFlow 1's and 2's control flow; 'contrib' those of tf.contrib;
      'object' is for `tf.train.Checkpoint`; 'keras2' the same as Keras 2.3 and
      later have it; 'fp32' the source without its loss scales.
    set_loss_scale: What every loss scale is to be; its counters become 0. A
      source that has none gets one.
    reset: As `set_loss_scale=32768`, where DynamicLossScale starts.
    template: An object-based checkpoint of the same model, for 'object' and
      'keras2' from variables by name: the graph of its objects is taken.
    mapping: New name -> name in the source, where nothing proves which of
      several it is.
    overwrite: Whether the destination may be replaced.
    progress: Called with the number of bytes to come; returns what is called
      with the number of bytes each time some were read or written.

  Returns:
    What was written.

  Raises:
    CheckpointError: It cannot be converted; nothing was written then.
  """
  if to not in LAYOUTS:
    raise CheckpointError(
      f"{to!r} is no layout; there are {', '.join(LAYOUTS)}"
    )
  scale = _wanted_scale(set_loss_scale, reset)
  if scale is not None and to == "fp32":
    raise CheckpointError("fp32 has no loss scale that could be set")
  found = paths.find(os.fspath(source))
  if found.kind in (kinds.KERAS_H5, kinds.KERAS_ZIP):
    raise CheckpointError(
      f"{found.path}: a Keras file is converted by loading and saving it: "
      "tf_compat_lossscale.keras.load_model(), then "
      "tf.train.Checkpoint(model=…, optimizer=…).save()"
    )
  bundle = Bundle(found.path)
  try:
    sources, changed = _plan(bundle, to, scale, template, mapping or {})
  except ValueError as error:
    if isinstance(error, CheckpointError):
      raise
    raise CheckpointError(f"{bundle.prefix}: {error}") from None
  destination = os.fspath(destination)
  advance = progress(2 * bundle.size) if progress else lambda size: None
  stop = threading.Event()

  def checked(size: int) -> None:
    if stop.is_set():
      raise CheckpointError(f"{bundle.prefix}: given up")
    advance(size)

  # Read through by another thread while it is copied by this one.
  with concurrent.futures.ThreadPoolExecutor(1) as pool:
    check = pool.submit(bundle.check, checked)

    def copied(size: int) -> None:
      if check.done():
        check.result()  # Damaged: no need to copy the rest.
      advance(size)

    try:
      with writing.whole(destination, sources, overwrite, copied):
        check.result()
    finally:
      stop.set()
  return _summary(destination, bundle, sources, changed)


def _wanted_scale(set_loss_scale: float | None, reset: bool) -> float | None:
  if set_loss_scale is None:
    return _INITIAL if reset else None
  if reset:
    raise CheckpointError("reset and set_loss_scale exclude each other")
  try:
    return arguments.check_scale("set_loss_scale", set_loss_scale)
  except ValueError as error:
    raise CheckpointError(str(error)) from None


def _plan(
  bundle: Bundle,
  to: str,
  scale: float | None,
  template: str | os.PathLike[str] | None,
  mapping: Mapping[str, str],
) -> tuple[Sources, list[str]]:
  """What the new checkpoint is made of, and what was set in it."""
  objects = OBJECT_GRAPH in bundle
  if template is not None and to not in ("object", "keras2"):
    raise CheckpointError(f"{to} needs no template; it goes by names")
  if to in ("object", "keras2") and not objects and template is None:
    raise CheckpointError(
      f"{bundle.prefix}: it names variables, not objects, and a graph of "
      "objects cannot be made up: give a template, an object-based checkpoint "
      "of the same model"
    )
  if objects and template is None and to in ("object", "keras2", "fp32"):
    if mapping:
      raise CheckpointError(f"{bundle.prefix}: {to} keeps names; map nothing")
    if to == "object":
      sources = by_object.copy_all(bundle)
    elif to == "keras2":
      sources = by_object.flatten_keras(bundle)
    else:
      sources = by_object.remove_scales(bundle)
    return sources, _set_in_objects(sources, bundle, scale, to)
  variables = by_object.list_by_name(bundle)
  side = Inventory(
    {name: source.spec for name, source in variables.items()},
    lambda: evidence.find_evidence(bundle),
  )
  changed = _set_scales(variables, side, scale, bundle.prefix)
  if template is not None:
    model = Bundle(paths.find(os.fspath(template)).path)
    return by_object.fill_template(
      variables, model, to == "keras2", mapping, side
    ), changed
  api = {"contrib": names.CONTRIB, "fp32": None}.get(to, names.COMPAT)
  flow = "v1" if to in ("saver", "contrib") else "v2"
  return by_name.rename_variables(
    variables, side, api, flow, bundle.prefix, mapping
  ), changed


def _set_scales(
  variables: Sources,
  side: Inventory,
  scale: float | None,
  path: str,
) -> list[str]:
  """Sets every loss scale; adds one if there is none."""
  if scale is None:
    return []
  if side.scales.unclear:
    side.gather_evidence()
  states, unclear = side.scales
  if unclear:
    raise CheckpointError(
      f"{path}: nothing proves which of {', '.join(sorted(unclear))} are a "
      "loss scale's, since there are more of one kind than of another: put the "
      "MetaGraph, the '.meta' file, beside it"
    )
  if not states:
    base = tuple(names.SCALE_TENSORS[names.COMPAT])
    states = [names.ScaleNames(names.COMPAT, "", base)]
    taken = sorted(set(base) & set(variables))
    if taken:
      raise CheckpointError(
        f"{path}: it has no loss scale, and none can be added: the model has a "
        f"variable of its own that is called {taken[0]}"
      )
    side.tensors |= names.SCALE_TENSORS[names.COMPAT]
    side.has_new_scale = True
  changed: list[str] = []
  for state in states:
    variables.update(zip(state.names, make_new_scale(scale, state.api)))
    changed += state.names
  return changed


def _set_in_objects(
  sources: Sources, bundle: Bundle, scale: float | None, to: str
) -> list[str]:
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
    dtype = sources[key].spec.dtype
    value = scale if base in by_object.SCALE_CHILDREN else 0
    sources[key] = Literal(dtype, value)
    changed.append(key)
  return changed


def _summary(
  destination: str,
  bundle: Bundle,
  sources: Sources,
  changed: list[str],
) -> Conversion:
  origins = {
    name: get_origin(source)
    for name, source in sources.items()
    if get_origin(source) in bundle
    and getattr(source, "bundle", bundle) is bundle
  }
  used = set(origins.values())
  return Conversion(
    path=destination,
    renamed={new: old for new, old in origins.items() if new != old},
    dropped=tuple(
      name
      for name in bundle.names
      if name not in used and name not in sources and name != OBJECT_GRAPH
    ),
    added=tuple(
      name
      for name in sources
      if name not in origins and name not in bundle and name != OBJECT_GRAPH
    ),
    changed=tuple(name for name in changed if name in sources),
  )

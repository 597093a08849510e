# SPDX-License-Identifier: Apache-2.0
"""Converts checkpoints between the layouts of releases and APIs."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import os
import typing
from typing import Any
from typing import NamedTuple
from typing import TypeAlias

from tf_compat_lossscale._core import arguments
from tf_compat_lossscale._core import wrong_values
from tf_compat_lossscale.checkpoint import _renaming
from tf_compat_lossscale.checkpoint import _weights
from tf_compat_lossscale.checkpoint import _writing
from tf_compat_lossscale.checkpoint import names
from tf_compat_lossscale.checkpoint import pairs
from tf_compat_lossscale.checkpoint import reading
from tf_compat_lossscale.checkpoint._renaming import Options
from tf_compat_lossscale.checkpoint._report import Conversion
from tf_compat_lossscale.checkpoint._targets import Source
from tf_compat_lossscale.checkpoint.reading import Checkpoint
from tf_compat_lossscale.checkpoint.reading import CheckpointError

Layout: TypeAlias = typing.Literal[
  "saver", "saver-v2", "contrib", "fp32", "weights", "npz", "safetensors"
]


class _Row(NamedTuple):
  """What a layout is.

  Attributes:
    options: The options of `convert` that it has besides those of all.
    api: The API whose names loss scales get; None if they are left out.
    is_v1: Whether powers lie in the conds of TensorFlow 1's control flow.
    file: The kind of file that it is, for `write_file`; "" for a checkpoint.
  """

  options: tuple[str, ...]
  api: str | None = None
  is_v1: bool = False
  file: str = ""


_NAMES = ("mapping", "same_order")
_SCALES = ("set_loss_scale", "reset", *_NAMES)
# Of layouts with the model's tensors alone.
_MODEL = _weights.Selection._fields
_LAYOUTS: dict[Layout, _Row] = {
  "saver": _Row(_SCALES, names.COMPAT, is_v1=True),
  "saver-v2": _Row(_SCALES, names.COMPAT),
  "contrib": _Row(_SCALES, names.CONTRIB, is_v1=True),
  "fp32": _Row(_NAMES),
  "weights": _Row(_MODEL),
  "npz": _Row(_MODEL, file="npz"),
  "safetensors": _Row(_MODEL, file="safetensors"),
}
_INITIAL = 2.0**15  # The default of DynamicLossScale.
_Progress = Callable[[int], None]
# The options that have another name on the command line.
_FLAGS = {"mapping": "map"}


def convert(
  source: str | os.PathLike[str],
  destination: str | os.PathLike[str],
  to: Layout,
  *,
  set_loss_scale: float | None = None,
  reset: bool = False,
  mapping: Mapping[str, str] | None = None,
  same_order: bool = False,
  overwrite: bool = False,
  progress: Callable[[int], _Progress] | None = None,
  masters: bool = False,
  averages: bool = False,
  include: Sequence[str] = (),
  exclude: Sequence[str] = (),
  dry_run: bool = False,
) -> Conversion:
  """Writes a new checkpoint from another one, in another layout.

  The source is never changed; if another process overwrites it meanwhile, the
  conversion starts again. The destination appears whole or not at all. If its
  folder has no file 'checkpoint', in which TensorFlow looks for the latest one,
  that file is written, too.

  Args:
    source: A checkpoint, as `describe` takes it.
    destination: The new checkpoint's prefix; for 'npz' and 'safetensors' the
      new file.
    to: The layout. 'saver' and 'saver-v2' name variables as `compat.v1` does
      under TensorFlow 1's and 2's control flow, 'contrib' as tf.contrib did.
      'fp32' is a source by name without its loss scales. 'weights', 'npz' and
      'safetensors' have the model's tensors alone, without slots, powers,
      averages, loss scales and steps, by name: as a checkpoint that any Saver
      restores, or as one file.
    set_loss_scale: The new value of every loss scale, whose counters become 0.
      If the source has no loss scale, one is added.
    reset: Sets the loss scales to 32768, the default of DynamicLossScale.
    mapping: New name -> name in the source. It decides if names do not tell
      which of several variables gets a name.
    same_order: Whether the optimizers of both programs are made in one order,
      and all that has the name of a loss scale is one. It decides, too.
    overwrite: Whether the destination may be replaced.
    progress: Called with the number of bytes to write. It returns a function
      that is called with each number of bytes that were written.
    masters: Whether float32 masters take the place of float16 weights. This and
      the next three are for 'weights', 'npz' and 'safetensors'.
    averages: Whether moving averages take the place of weights.
    include: Patterns of a shell, such as 'bert/encoder/*', or whole names. The
      name of a tensor must match one; all are kept if there is none. A star
      matches slashes, too. Patterns also choose between several averages.
    exclude: Patterns, of which the name of a tensor may match none.
    dry_run: Whether nothing is written, so that the result alone tells what
      would be.

  Returns:
    The result.

  Raises:
    CheckpointError: The source cannot be converted. Nothing was written.
  """
  selection = _weights.Selection(masters, averages, include, exclude)
  _check_layout(
    to,
    {
      "set_loss_scale": set_loss_scale is not None,
      "reset": reset,
      "mapping": mapping,
      "same_order": same_order,
      **selection._asdict(),
    },
  )
  selection.check()
  row = _LAYOUTS[to]
  scale = _find_scale(set_loss_scale, reset)
  options = Options(row.api, row.is_v1, scale, pairs.check(mapping), same_order)
  path = reading.check_path(destination)
  if row.file:
    _writing.check_file(path, row.file, overwrite)
  else:
    _writing.check_prefix(path, overwrite)

  def attempt(checkpoint: Checkpoint) -> Conversion:
    sources, result = _plan(checkpoint, path, row, options, selection)
    if row.file:
      _writing.check_tensors(path, row.file, result.written)
    if dry_run:
      return result
    advance = progress(result.size) if progress else lambda size: None
    if row.file:
      _writing.write_file(
        path, row.file, overwrite, checkpoint, sources, advance
      )
      return result
    keeps_names = not (result.renamed or result.added or result.dropped)
    more = _writing.write_checkpoint(
      path, sources, checkpoint, overwrite, keeps_names, advance
    )
    return dataclasses.replace(result, notes=(*result.notes, *more))

  return reading.read_consistently(source, attempt)


def _check_layout(to: Layout, given: Mapping[str, Any]) -> None:
  """Refuses what is no layout, and options that the layout does not have."""
  if to not in _LAYOUTS:
    raise CheckpointError(
      f"{to!r} is no layout; there are {', '.join(_LAYOUTS)}"
      f"{wrong_values.suggest(to, _LAYOUTS)}; for objects of another optimizer "
      "or Keras, restore into the live objects and save"
    )
  for name, value in given.items():
    if value and name not in _LAYOUTS[to].options:
      flag = _FLAGS.get(name, name).replace("_", "-")
      owners = (other for other, row in _LAYOUTS.items() if name in row.options)
      raise CheckpointError(
        f"{name} (--{flag}) is an option of {', '.join(owners)}, but the "
        f"layout is {to}: leave it out"
      )


def _find_scale(value: float | None, reset: bool) -> float | None:
  """Returns what loss scales are set to; None if they keep their values."""
  if reset and value is not None:
    raise CheckpointError("reset and set_loss_scale exclude each other")
  if value is None:
    return _INITIAL if reset else None
  try:
    return arguments.check_scale("set_loss_scale", value)
  except ValueError as error:
    raise CheckpointError(str(error)) from None


def _plan(
  checkpoint: Checkpoint,
  path: str,
  row: _Row,
  options: Options,
  selection: _weights.Selection,
) -> tuple[dict[str, Source], Conversion]:
  """Returns new name -> the source of the tensor, and the result."""
  found = _weights.Weights()
  changed: Sequence[str] = ()
  if row.options == _MODEL:
    found = _weights.find_weights(checkpoint, selection)
    sources = {
      name: Source(key, checkpoint.specs[key])
      for name, key in found.kept.items()
    }
  elif row.api is None and checkpoint.object_graph is not None:
    raise CheckpointError(
      f"{checkpoint.prefix}: fp32 takes checkpoints by name, but this one is "
      "of objects: restore it into the live objects of the float32 program "
      "by tf_compat_lossscale.checkpoint.restore, and save them"
    )
  else:
    sources, changed, found.notes = _renaming.rename(checkpoint, options)
  used = {source.key for source in sources.values()}
  lost = [n for n in checkpoint.specs if n not in used and n not in sources]
  return sources, Conversion(
    path=path,
    renamed={n: s.key for n, s in sources.items() if s.key not in ("", n)},
    dropped=tuple(found.dropped or lost),
    added=tuple(
      n
      for n, source in sources.items()
      if not source.key and n not in checkpoint.specs
    ),
    changed=tuple(changed),
    notes=(*checkpoint.notes, *found.notes),
    reasons=found.dropped,
    unproven=tuple(found.unproven),
    sizes={name: spec.size for name, spec in checkpoint.specs.items()},
    written={name: source.spec for name, source in sources.items()},
  )

# SPDX-License-Identifier: Apache-2.0
"""Finds what is written of a checkpoint if only the model is asked for."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

from tf_compat_lossscale.checkpoint.files import weight_files
from tf_compat_lossscale.checkpoint.files.bundle import Bundle
from tf_compat_lossscale.checkpoint.files.bundle import OBJECT_GRAPH
from tf_compat_lossscale.checkpoint.files.checkpoint_error import (
  CheckpointError,
)
from tf_compat_lossscale.checkpoint.files.values import Stored
from tf_compat_lossscale.checkpoint.layouts import model_tensors

_WEIGHTS = "weights"
LAYOUTS = (_WEIGHTS, *weight_files.FORMATS)
# The options that have another name on the command line.
_FLAGS = {"mapping": "map"}


class Choice(NamedTuple):
  """What is written of a checkpoint, as `convert` takes it."""

  masters: bool = False
  averages: bool = False
  include: Sequence[str] = ()
  exclude: Sequence[str] = ()


def check_options(to: str, choice: Choice, others: Mapping[str, Any]) -> None:
  """Checks that the options that are given are those of the layout.

  Args:
    to: The layout.
    choice: The options of `LAYOUTS`.
    others: Name -> value, of the options of other layouts.

  Raises:
    CheckpointError: An option is of other layouts, or two exclude each other.
  """
  own = choice._asdict()
  foreign = others if to in LAYOUTS else own
  given = [name for name, value in foreign.items() if value]
  if given:
    those = "the other layouts" if to in LAYOUTS else ", ".join(LAYOUTS)
    flag = _FLAGS.get(given[0], given[0]).replace("_", "-")
    raise CheckpointError(
      f"{given[0]} (--{flag}) is an option of {those}, but the layout is {to}: "
      "leave it out"
    )
  if choice.masters and choice.averages:
    raise CheckpointError(
      "masters and averages exclude each other: both take the place of weights"
    )
  for name in ("include", "exclude"):
    if isinstance(own[name], str):
      raise CheckpointError(
        f"{name} is the text {own[name]!r}, but must be a list of patterns"
      )


def plan(
  bundle: Bundle, destination: str, to: str, choice: Choice
) -> tuple[dict[str, Stored], dict[str, Any]]:
  """Finds the model's tensors of a checkpoint.

  Args:
    bundle: The checkpoint.
    destination: The prefix of the new checkpoint, or the new file.
    to: The layout, one of `LAYOUTS`.
    choice: What is written.

  Returns:
    Name -> tensor, and what a `Conversion` says besides.

  Raises:
    CheckpointError: The checkpoint has no such tensors, or the layout cannot
      have one of them.
  """
  found = _find(bundle, choice)
  sources = {new: Stored(bundle, old) for new, old in found.kept.items()}
  if to in weight_files.FORMATS:
    weight_files.check_tensors(destination, to, sources)
  sizes = {name: bundle.get_size(name) for name in bundle.specs}
  sizes.pop(OBJECT_GRAPH, None)
  return sources, {
    "dropped": tuple(found.dropped),
    "reasons": found.dropped,
    "unproven": tuple(found.unproven),
    "notes": tuple(_note_others(found, choice)),
    "sizes": sizes,
  }


def _note_others(
  found: model_tensors.ModelTensors, choice: Choice
) -> Iterator[str]:
  """Yields sentences on what is written in another precision, or plainly."""
  halves = found.masters.keys() & found.kept.keys()
  if halves and not choice.masters and not choice.averages:
    yield (
      f"{len(halves)} weights are written in float16; masters (--masters) "
      "writes their float32 masters in their place"
    )
  plain = sorted(found.kept.keys() - found.averages.keys())
  if plain and choice.averages:
    more = f" and {len(plain) - 5} more" if plain[5:] else ""
    listed = ", ".join(plain[:5])
    yield f"without an average, and written as they are: {listed}{more}"


def _find(bundle: Bundle, choice: Choice) -> model_tensors.ModelTensors:
  """Returns the tensors of a checkpoint, as they are chosen."""
  found = model_tensors.find_model(bundle)
  try:
    if choice.masters:
      found.replace(found.masters, "float32 masters")
    if choice.averages:
      found.replace(found.averages, "averages")
    found.choose(choice.include, choice.exclude)
  except CheckpointError as error:
    raise CheckpointError(f"{bundle.prefix}: {error}") from None
  return found

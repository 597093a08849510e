# SPDX-License-Identifier: Apache-2.0
"""Applies the mapping by which the caller decides on sources of variables.

A mapping of one variable also decides on the variables that belong to it:

- The other power of the same Adam: `beta1_power: beta1_power_1` also maps
  `beta2_power` to `beta2_power_1`.
- The other variables of the same loss scale: `current_loss_scale:
  gen/current_loss_scale` also maps `good_steps` to `gen/good_steps`.
"""

from __future__ import annotations

from collections.abc import Mapping

from tf_compat_lossscale.checkpoint.files.values import Literal
from tf_compat_lossscale.checkpoint.layouts import names
from tf_compat_lossscale.checkpoint.layouts import problems
from tf_compat_lossscale.checkpoint.layouts.match import PartialMatch
from tf_compat_lossscale.checkpoint.layouts.scale_bridges import convert_counter

_MAPPED = "the mapping says so"
_BAD_STEPS = names.SCALE_TENSORS[names.CONTRIB]["bad_steps"]


def apply_mapping(
  match: PartialMatch, mapping: Mapping[str, str | None]
) -> None:
  """Gives variables the sources that the caller decided on.

  Args:
    match: The match to fill.
    mapping: Variable -> its name in the checkpoint, or None to initialize it.

  Raises:
    ValueError: The mapping has a name that does not exist.
  """
  _check_names(match, mapping)
  for name, key in mapping.items():
    if name in match.wanted:
      if key is None:
        match.initialize({name: _MAPPED})
      else:
        _map_variable(match, name, key, mapping)
  _map_rest_of_scales(match, mapping)


def _check_names(
  match: PartialMatch, mapping: Mapping[str, str | None]
) -> None:
  for name, key in mapping.items():
    if name not in match.here.tensors:
      near = problems.suggest_names(name, match.here.tensors)
      raise ValueError(f"mapping names {name!r}{near}, which is no variable.")
    if key is not None and key not in match.sources:
      near = problems.suggest_names(key, match.sources)
      raise ValueError(
        f"mapping has {key!r}{near} for {name!r}, which is not in the "
        "checkpoint."
      )


def _map_variable(
  match: PartialMatch, name: str, key: str, mapping: Mapping[str, str | None]
) -> None:
  """Maps one variable and, if the variable is a power, the other power."""
  stored = match.sources[key]
  source = stored
  if names.is_named_like_scale(name, match.wanted[name]):
    source = convert_counter(stored, match.wanted[name])
  same = name == key and source is stored
  match.set_source(name, source, "" if same else _MAPPED)
  if name != key:
    match.here.renamed[name] = key
  other, other_key = names.get_other_power(name), names.get_other_power(key)
  if (
    names.is_power(name, match.here.tensors[name])
    and other in match.wanted
    and other not in mapping
    and other_key in match.given
  ):
    proof = _MAPPED if other != other_key else ""
    match.set_source(other, match.sources[other_key], proof)


def _map_rest_of_scales(
  match: PartialMatch, mapping: Mapping[str, str | None]
) -> None:
  """Maps the variables of mapped loss scales that the mapping leaves out."""
  ours = {n: scale for scale in match.scales.known for n in scale.names}
  theirs = {n: scale for scale in match.scales_there.known for n in scale.names}
  match.has_mapped_scale = any(mapping.get(name) for name in ours)
  for scale in {ours[name] for name in mapping if name in ours}:
    left = [name for name in scale.names if name in match.wanted]
    if mapping.get(scale.names[0], "") is None:
      match.initialize(dict.fromkeys(left, _MAPPED))
      continue
    keys = {mapping.get(name) for name in scale.names} & theirs.keys()
    sources = {theirs[key] for key in keys if key}
    if left and len(sources) == 1:
      match.set_scale(scale, sources.pop(), _MAPPED, left)
    elif len(left) < len(scale.names):
      for name in left:
        # compat.v1 does not count bad steps.
        if names.get_base(name) == "bad_steps":
          match.set_source(
            name, Literal(_BAD_STEPS.dtype, 0), problems.NOT_COUNTED
          )

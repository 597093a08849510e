# SPDX-License-Identifier: Apache-2.0
"""Checks restores and conversions of the programs of `random_programs`."""

from __future__ import annotations

import inspect
import os
import re

import numpy as np
from random_builder import Api
from random_builder import Graphs
from random_builder import open_session
from random_builder import read_numbers
from random_builder import set_values
from random_programs import layout_variant
from switches import control_flow
import tensorflow as tf

_BEFORE = 5000  # The value of the first variable before a restore.
_LIKE_INTERNAL = re.compile(
  r"(current_loss_scale|loss_scale|good_steps|bad_steps|beta\d_power|schedule)"
  r"(_\d+)?"
)


class Finding:
  """The result of a restore or a conversion.

  Attributes:
    outcome: 'ok', 'error' (which is right if nothing is proven), 'exact by
      letter' (see `_EXCUSED`), or a key of `FAILURES`.
    details: The faults of a failure, or the message of an error.
    tags: Properties of the case, for statistics.
  """

  def __init__(self, outcome, details=(), tags=()) -> None:
    self.outcome, self.details, self.tags = outcome, list(details), set(tags)

  @property
  def failed(self) -> bool:
    return self.outcome in FAILURES

  def __str__(self) -> str:
    tags = f" [{', '.join(sorted(self.tags))}]" if self.tags else ""
    return "\n    ".join([self.outcome + tags, *map(str, self.details)])


# Tags of cases in which a variable may have another variable's value: all names
# are the same, so TensorFlow's own Saver would restore the same values.
_EXCUSED = {"exact by letter"}
FAILURES = {
  "WRONG": "a variable has the value of another variable",
  "SILENT": "a variable did not get its value, and the report does not say so",
  "LOST": "a variable starts anew although the checkpoint has its value",
  "TOUCHED": "a variable was assigned although there was an error",
  "TEXT": "an error names no variable, or does not say what to do",
  "STUCK": "the mapping that an error asks for is refused",
  "REFUSED": "a checkpoint of the same program and variant is not restored",
  "CHANGED": "a conversion to the layout of its source changed a tensor",
  "CRASHED": "an error is no CheckpointError",
}


def truth_of(identity, manifest):
  """Returns the (key, number) that a variable should get.

  Returns None if the checkpoint has no value for the variable, and an empty key
  for bad steps that must be set to 0.
  """
  if identity in manifest:
    return tuple(manifest[identity])
  bad_steps = identity[0] == "scale" and identity[2] == "bad"
  if bad_steps and (*identity[:2], "good") in manifest:
    return ("", 0)  # The other API does not count bad steps.
  return None


def _like_internals(names) -> set:
  """Returns the (name, dtype) pairs that are named like internal variables."""
  return {
    (name, dtype)
    for name, dtype in names
    if _LIKE_INTERNAL.fullmatch(name.rpartition("/")[2])
  }


def _tags(made, manifest, dtypes, meta) -> set:
  """Returns properties of a case, for statistics and excuses."""
  here = {(v.op.name, v.dtype.base_dtype.name) for v in made.values()}
  there = {(name, dtypes[name]) for name, _ in manifest.values()}
  tags = set()
  if not meta and _like_internals(here) == _like_internals(there):
    tags.add("exact by letter")
  if here == there:
    tags.add("all names equal")
  elif here <= there:
    tags.add("names are a subset")
  return tags


def _differences(made, manifest, numbers, initial, report):
  """Yields (outcome, description) for each variable that is not right."""
  keys = {number: name for name, number in manifest.values()}
  parts = ("restored", "bridged", "initialized", "kept")
  for identity, variable in made.items():
    name, number = variable.op.name, numbers[identity]
    listed = [p for p in parts if name in getattr(report, p)] if report else []
    truth = truth_of(identity, manifest)
    what = (
      f"{'/'.join(identity)}: {name} has {number} of "
      f"{keys.get(number, 'nothing')!r}, truly {truth}; listed in {listed}"
    )
    if report and len(listed) != 1:
      yield "SILENT", what
    elif truth is not None and number == truth[1]:
      if listed == ["kept"] or (listed == ["initialized"] and truth[0]):
        yield "SILENT", what
    elif number in keys:
      yield "WRONG", what
    elif truth is not None and listed == ["initialized"]:
      yield "LOST", what
    elif (
      listed != ["initialized"]
      or identity[0] != "scale"
      or number != initial[identity]
    ):
      yield "SILENT", what


def _judged(differences, tags) -> Finding:
  """Returns a finding with the worst outcome among the differences."""
  differences = list(differences)
  told = [what for _, what in differences]
  outcomes = {outcome for outcome, _ in differences}
  if tags & _EXCUSED and outcomes == {"WRONG"}:
    return Finding("exact by letter", told, tags)
  for outcome in FAILURES:
    if outcome in outcomes:
      return Finding(outcome, told, tags)
  return Finding("ok", told, tags)


def _says_enough(text, names) -> bool:
  """Returns whether an error names a variable and a fault or a remedy."""
  return any(name in text for name in names) and bool(
    re.search(r"mapping=|\bin it\b", text)
  )


def check(
  program,
  variant,
  api,
  path,
  manifest,
  saver=False,
  same=False,
  graphs=None,
):
  """Restores into a variant of a program, and judges every variable.

  Args:
    program: The program.
    variant: The variant to restore into.
    api: The `Api` to build the program with.
    path: The checkpoint.
    manifest: The checkpoint's manifest, as `save` returns it.
    saver: Whether to restore by a `Saver` and not by `restore`.
    same: Whether the checkpoint is of this variant, so that an error is wrong.
    graphs: The `Graphs` to look the program up in.

  Returns:
    A `Finding`.
  """
  from tf_compat_lossscale import checkpoint

  dtypes = _dtypes(path, manifest)
  meta = os.path.exists(path + ".meta")
  built = (graphs or Graphs()).get(program, variant, api)
  made, initial = built.made, built.initial()
  with control_flow(variant["v2"]), built.graph.as_default():
    tags = _tags(made, manifest, dtypes, meta)
    order = {identity: _BEFORE + i for i, identity in enumerate(made)}
    with open_session(built.graph) as session:
      set_values(session, [(made[k], n) for k, n in order.items()])
      restorer = checkpoint.Saver() if saver else None
      try:
        if restorer:
          restorer.restore(session, path)
          report = restorer.last_report
        else:
          report = checkpoint.restore(session, path)
      except checkpoint.CheckpointError as error:
        text = str(error)
        if read_numbers(session, made) != order:
          return Finding("TOUCHED", [text], tags)
        names = {v.op.name for v in made.values()}
        names.update(name for name, _ in manifest.values())
        if not _says_enough(text.replace(path, ""), names):
          return Finding("TEXT", [text], tags)
        if same:
          return Finding("REFUSED", [text], tags)
        return _with_mapping(
          session, path, made, manifest, initial, Finding("error", [text], tags)
        )
      except Exception as error:  # A failure, of whatever kind.
        return Finding("CRASHED", [f"{type(error).__name__}: {error}"], tags)
      numbers = read_numbers(session, made)
      if report and report.bridged:
        tags.add("bridged")
      return _judged(
        _differences(made, manifest, numbers, initial, report), tags
      )


def _with_mapping(session, path, made, manifest, initial, finding) -> Finding:
  """Restores with the true mapping, if an error asks for a mapping."""
  from tf_compat_lossscale import checkpoint

  text = finding.details[0]
  accepted = inspect.signature(checkpoint.restore).parameters
  by_object = "_CHECKPOINTABLE_OBJECT_GRAPH" in dict(
    tf.train.list_variables(path)
  )
  if "mapping" not in accepted or "mapping=" not in text or by_object:
    return finding
  truths = {
    made[identity].op.name: truth_of(identity, manifest) for identity in made
  }
  mapping = {name: truth[0] for name, truth in truths.items() if truth}
  mapping = {name: key for name, key in mapping.items() if key}
  for identity, variable in made.items():  # New loss scales map to None.
    if identity[0] == "scale" and not truths[variable.op.name]:
      mapping[variable.op.name] = None
  # The text lists candidates, as many as it has space for.
  if not any(
    name in text and str(key) in text for name, key in mapping.items()
  ):
    finding.tags.add("no true candidate is listed")
  missing = [
    identity
    for identity in made
    if identity[0] != "scale" and not truth_of(identity, manifest)
  ]
  try:
    report = checkpoint.restore(session, path, mapping=mapping)
  except (checkpoint.CheckpointError, ValueError) as error:
    finding.details.append(f"with the true mapping: {error}")
    finding.tags.add("mapping refused")
    if not missing:
      finding.outcome = "STUCK"
    return finding
  numbers = read_numbers(session, made)
  judged = _judged(
    _differences(made, manifest, numbers, initial, report), set()
  )
  finding.tags.add("mapped")
  if judged.failed:
    return Finding(judged.outcome, judged.details, finding.tags)
  return finding


def _dtypes(path, manifest) -> dict:
  """Returns name -> dtype for the variables in a checkpoint."""
  reader = tf.train.load_checkpoint(path)
  found = reader.get_variable_to_dtype_map()
  # Keys of an object-based checkpoint are no names. Numbers identify variables.
  if all(name in found for name, _ in manifest.values()):
    return {name: found[name].name for name, _ in manifest.values()}
  numbers = {number: name for name, number in manifest.values()}
  dtypes = {}
  for key, dtype in found.items():
    if dtype != tf.string:
      number = float(np.ravel(reader.get_tensor(key))[0])
      if number in numbers:
        dtypes[numbers[number]] = dtype.name
  return dtypes


def check_conversion(
  program, variant, path, manifest, to, graphs=None
) -> Finding:
  """Converts a checkpoint, restores it by TensorFlow's Saver, and judges."""
  from tf_compat_lossscale import checkpoint

  here = layout_variant(variant, to)
  new = os.path.join(os.path.dirname(path), f"to-{to}")
  dtypes = _dtypes(path, manifest)
  meta = os.path.exists(path + ".meta")
  built = (graphs or Graphs()).get(program, here, Api("tfl"))
  made = built.made
  with control_flow(here["v2"]), built.graph.as_default():
    tags = _tags(made, manifest, dtypes, meta)
    try:
      checkpoint.convert(path, new, to, overwrite=True)
    except checkpoint.CheckpointError as error:
      return Finding("error", [str(error)], tags)
    except Exception as error:  # A failure, of whatever kind.
      return Finding("CRASHED", [f"{type(error).__name__}: {error}"], tags)
    with open_session(built.graph) as session:
      try:
        built.saver().restore(session, new)
      except (tf.errors.OpError, ValueError) as error:
        line = str(error).strip().splitlines()[0]
        return Finding("error", [f"{type(error).__name__}: {line}"], tags)
      numbers = read_numbers(session, made)
      differences = _differences(made, manifest, numbers, {}, None)
      return _judged(differences, tags)


def check_own_layout(path, to) -> Finding:
  """Converts a checkpoint to its own layout, and judges: all must stay.

  Counters that a loss scale lacks may be added.
  """
  from tf_compat_lossscale import checkpoint

  new = os.path.join(os.path.dirname(path), f"own-{to}")
  try:
    checkpoint.convert(path, new, to, overwrite=True)
  except checkpoint.CheckpointError as error:
    return Finding("error", [str(error)])
  before, after = map(_contents, (path, new))
  details = [
    f"{key}: {value} became {after.get(key)}"
    for key, value in before.items()
    if value != after.get(key)
  ]
  return Finding("CHANGED", details) if details else Finding("ok")


def _contents(path) -> dict:
  """Returns key -> (dtype, bytes) for the tensors of a checkpoint."""
  reader = tf.train.load_checkpoint(path)
  return {
    key: (dtype.name, np.asarray(reader.get_tensor(key)).tobytes().hex())
    for key, dtype in reader.get_variable_to_dtype_map().items()
  }

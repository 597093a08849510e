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
  """How a restore or a conversion went.

  Attributes:
    outcome: 'ok', 'error' (as it should be where nothing is proven), or one of
      FAILURES.
    details: What is wrong, if it is a failure; what was said, if an error.
    tags: What is known of the case.
  """

  def __init__(self, outcome, details=(), tags=()) -> None:
    self.outcome, self.details, self.tags = outcome, list(details), set(tags)

  @property
  def failed(self) -> bool:
    return self.outcome in FAILURES

  def __str__(self) -> str:
    tags = f" [{', '.join(sorted(self.tags))}]" if self.tags else ""
    return "\n    ".join([self.outcome + tags, *map(str, self.details)])


# Cases in which another's value counts as right, as TensorFlow's own Saver goes
# by names as well.
_EXCUSED = {"exact by letter"}
# An optimizer was dropped, and another one's slots have its names now.
_SLOT = re.compile(r"slot/\S+: (\S+) has \S+ of '(\S+)', ")
FAILURES = {
  "WRONG": "a variable has a value that is another's",
  "SILENT": "a variable is left out, and not said to be",
  "LOST": "a variable starts anew although the checkpoint has its value",
  "TOUCHED": "something was assigned although there was an error",
  "TEXT": "an error names no variable, or no way out",
  "STUCK": "what an error says would decide does not",
  "REFUSED": "the very same program is not restored",
  "CHANGED": "a conversion changed what was in its layout already",
  "CRASHED": "an error that is no CheckpointError",
}


def truth_of(identity, manifest):
  """Returns what a variable should have: (key, number), or None.

  None is for a loss scale that the checkpoint has nothing of.
  """
  if identity in manifest:
    return tuple(manifest[identity])
  bad_steps = identity[0] == "scale" and identity[2] == "bad"
  if bad_steps and (*identity[:2], "good") in manifest:
    return ("", 0)  # Which the other API does not count.
  return None


def _like_internals(names) -> set:
  """Returns those (name, dtype) pairs that may be an optimizer's own."""
  return {
    (name, dtype)
    for name, dtype in names
    if _LIKE_INTERNAL.fullmatch(name.rpartition("/")[2])
  }


def _tags(made, manifest, dtypes, meta) -> set:
  """Says what makes a case one to be counted apart."""
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
  """Yields (outcome, what differs) for every variable that is not right."""
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
  """Returns the finding that differences amount to: the worst of them."""
  differences = list(differences)
  told = [what for _, what in differences]
  outcomes = {outcome for outcome, _ in differences}
  slots = [match for match in map(_SLOT.match, told) if match]
  dropped = bool(slots) and all(match[1] == match[2] for match in slots)
  if (tags & _EXCUSED or dropped) and "WRONG" in outcomes:
    outcomes -= {"WRONG", "LOST"} if dropped else {"WRONG"}
    if not outcomes:
      return Finding("exact by letter", told, tags)
  for outcome in FAILURES:
    if outcome in outcomes:
      return Finding(outcome, told, tags)
  return Finding("ok", told, tags)


def _says_enough(text, names) -> bool:
  """Whether an error names a variable, and what is wrong or what to do."""
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
  """Restores into a variant, and judges every variable.

  Args:
    program: The program.
    variant: How it is built here.
    api: By which API.
    path: The checkpoint.
    manifest: What is in it.
    saver: Restores by a `Saver`, not by `restore`.
    same: Whether nothing differs, so that there must not be an error.
    graphs: Programs that are built already.

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
      except Exception as error:  # Reported: no other kind is foreseen.
        return Finding("CRASHED", [f"{type(error).__name__}: {error}"], tags)
      numbers = read_numbers(session, made)
      if report and report.bridged:
        tags.add("bridged")
      return _judged(
        _differences(made, manifest, numbers, initial, report), tags
      )


def _with_mapping(session, path, made, manifest, initial, finding) -> Finding:
  """Restores once more, saying which is which, if the error says so."""
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
  for identity, variable in made.items():  # A loss scale that is new here.
    if identity[0] == "scale" and not truths[variable.op.name]:
      mapping[variable.op.name] = None
  # Each candidate, as far as the text goes.
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
  """Returns the dtype of every variable in a checkpoint, by its name."""
  reader = tf.train.load_checkpoint(path)
  found = reader.get_variable_to_dtype_map()
  # One by object has keys of other kinds; there a number says which it is.
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
  """Converts, and has TensorFlow's own Saver restore it."""
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
    except Exception as error:  # Reported: no other kind is foreseen.
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
  """Converts to the layout that a checkpoint is in: nothing may change."""
  from tf_compat_lossscale import checkpoint

  new = os.path.join(os.path.dirname(path), f"own-{to}")
  try:
    checkpoint.convert(path, new, to, overwrite=True)
  except checkpoint.CheckpointError as error:
    return Finding("error", [str(error)])
  before, after = map(_contents, (path, new))
  if before == after:
    return Finding("ok")
  details = [
    f"{key}: {before.get(key)} became {after.get(key)}"
    for key in sorted({*before, *after})
    if before.get(key) != after.get(key)
  ]
  return Finding("CHANGED", details)


def _contents(path) -> dict:
  """Returns (dtype, bytes) of every tensor, by key."""
  reader = tf.train.load_checkpoint(path)
  return {
    key: (dtype.name, np.asarray(reader.get_tensor(key)).tobytes().hex())
    for key, dtype in reader.get_variable_to_dtype_map().items()
  }

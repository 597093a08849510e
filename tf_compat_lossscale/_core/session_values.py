# SPDX-License-Identifier: Apache-2.0
"""Assigns values to variables of a session without a new op.

A finalized graph takes no new ops. So the ops that initialize the variables are
run, with other values fed for the initial values.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from typing import NamedTuple

import numpy as np
import tensorflow.compat.v2 as tf

from tf_compat_lossscale._core.tf import graphs


class Assignment(NamedTuple):
  """The assignment of a value to a variable, or to its copy on a replica.

  Attributes:
    op: The op that initializes the variable.
    tensor: The tensor that the op assigns, to be fed.
    value: The value.
  """

  op: tf.Operation
  tensor: tf.Tensor
  value: np.ndarray


def plan(values: Iterable[tuple[Any, np.ndarray]]) -> list[Assignment]:
  """Returns the assignments for pairs of a variable and its new value.

  Raises:
    ValueError: The op that initializes a variable takes no value.
  """
  return [
    Assignment(each.initializer, _find_input(each), value)
    for variable, value in values
    for each in _list_components(variable)
  ]


def run(session: tf.compat.v1.Session, assignments: list[Assignment]) -> None:
  """Runs assignments, all at once unless variables share an initial value."""
  pending = assignments
  while pending:
    feeds: dict[Any, np.ndarray] = {}
    ops, later = [], []
    for assignment in pending:
      key = assignment.tensor.ref()
      if key in feeds:
        later.append(assignment)
      else:
        feeds[key] = assignment.value
        ops.append(assignment.op)
    session.run(ops, {ref.deref(): value for ref, value in feeds.items()})
    pending = later


def try_to_initialize(
  session: tf.compat.v1.Session, variables: list[Any], others: list[Any]
) -> None:
  """Computes initial values of variables, and assigns none.

  Those made of variables that are yet to get values, such as the others, are
  not computed.

  Raises:
    ValueError: An initial value cannot be computed.
  """
  # By name, because a variable on several replicas has no op of its own.
  waiting = {variable.name.split(":")[0] for variable in [*variables, *others]}
  inputs = [variable.initializer.inputs[1:2] for variable in variables]
  ops = [tensor.op for (tensor,) in filter(None, map(list, inputs))]
  ready = [
    op
    for op in ops
    if waiting.isdisjoint(each.name for each in graphs.list_ancestors([op]))
  ]
  _compute(session, ready)


def initialize(session: tf.compat.v1.Session, variables: list[Any]) -> None:
  """Initializes variables.

  Raises:
    ValueError: An initial value cannot be computed.
  """
  _compute(session, [variable.initializer for variable in variables])


def _compute(session: tf.compat.v1.Session, ops: list[tf.Operation]) -> None:
  try:
    session.run(ops)
  except Exception as error:  # A program's own code may run in it.
    # The place of the op's definition comes first, then the reason.
    lines = [line for line in str(error).splitlines() if line.strip()]
    for i, line in enumerate(lines):
      if line.startswith("Node: "):
        lines = lines[i : i + 2]
    why = " ".join(lines[:2])
    raise ValueError(f"an initial value cannot be computed: {why}") from error


def _list_components(variable: Any) -> list[Any]:
  """Returns a variable's copies on several replicas, or the variable alone."""
  if len(variable.initializer.inputs) > 1:
    return [variable]
  return list(tf.distribute.get_strategy().experimental_local_results(variable))


def _find_input(variable: Any) -> tf.Tensor:
  inputs = variable.initializer.inputs
  if len(inputs) < 2:
    raise ValueError(
      f"{variable.name}: its initializer {variable.initializer.name} takes no "
      "value, but must assign a tensor"
    )
  if not inputs[1].graph.is_feedable(inputs[1]):
    raise ValueError(
      f"{variable.name}: the graph does not allow to feed its initial value"
    )
  return inputs[1]

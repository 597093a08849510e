# SPDX-License-Identifier: Apache-2.0
"""Watches the loss scale of a session: which steps were skipped, and why.

`tf-lossscale doctor` says whether what the hook has written is all right.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
import functools
import itertools
import os
import threading
from typing import Any
from typing import Literal
from typing import TypeAlias

import tensorflow.compat.v2 as tf

from tf_compat_lossscale import _step_log
from tf_compat_lossscale import environment
from tf_compat_lossscale import loss_scale_optimizer
from tf_compat_lossscale._core import finite
from tf_compat_lossscale._core import graph_weights
from tf_compat_lossscale._core.tf import control_flow
from tf_compat_lossscale._core.tf import graphs

__all__ = ["LossScaleHook", "StuckError"]
__dir__ = functools.partial(sorted, __all__)


_Args: TypeAlias = tf.compat.v1.train.SessionRunArgs
_Step: TypeAlias = loss_scale_optimizer.Step
StuckError = _step_log.StuckError

# A scope that is entered by its full name takes no name from other ops.
_SCOPE = f"{control_flow.NAME_SCOPE}/monitoring/"
_MOST_KNOWN = 256  # The most sets of fetches whose answers are kept.


class LossScaleHook(tf.compat.v1.train.SessionRunHook):
  """Watches the loss scale, and says which gradients make a step be skipped.

  The hook looks at the session's runs that do a step, and at no other run. It
  logs a line if a step is skipped, if the loss scale changes, and if the run is
  *stuck*: if its last `patience` steps were all skipped.

  With `output_dir`, the hook writes four scalars for TensorBoard and for
  `tf-lossscale doctor`: `loss_scale/value`, `loss_scale/good_steps` (if the
  loss scale counts them), and the number and the share of the steps skipped in
  this session, `loss_scale/skipped_total` and `loss_scale/skipped_rate`.

  Numbers of steps are numbers of *attempted* steps, applied or skipped, counted
  from the global step at the start of the session; from 0 if there is none.
  With `accumulate`, a step is a window.

  Attributes:
    stop_requested: Whether the run was found stuck with `on_stuck="stop"`.
  """

  def __init__(
    self,
    optimizer: Any,
    output_dir: str | os.PathLike[str] | None = None,
    every_n_steps: int = 100,
    on_stuck: Literal["warn", "stop", "raise"] = "warn",
    patience: int = 200,
  ) -> None:
    """Creates a hook; nothing is added to a graph yet.

    Args:
      optimizer: A `MixedPrecisionLossScaleOptimizer`, a
        `contrib.LossScaleOptimizer`, what `accumulate` returned, an optimizer
        that wraps one of these, or one that has a loss scale by NVIDIA's
        environment variables.
      output_dir: The folder of the event file, which is created; None for no
        file. Each hook needs its own.
      every_n_steps: How often scalars are written. They are also written at the
        start, at each skipped step, and at the end.
      on_stuck: What happens if the run is stuck: "warn" logs a warning, and
        another one after twice as many steps; "stop" also asks the session to
        stop; "raise" raises a `StuckError`.
      patience: How many skipped steps in a row make a run stuck.

    Raises:
      ValueError: `optimizer` has no loss scale, or another argument is none of
        these; the message names it.
    """
    self._optimizers = environment.list_scaled(optimizer)
    self._log = _step_log.StepLog(output_dir, every_n_steps, on_stuck, patience)
    self._probes: list[_Probe] = []
    self._start: Any = None
    self._known: dict[Any, tuple[Any, _Args | None]] = {}
    self._lock = threading.Lock()  # Several threads may share a session.
    self.stop_requested = False

  def begin(self) -> None:
    """Adds the ops that tell what a step did to the current graph.

    Raises:
      RuntimeError: The optimizer has taken no step in this graph that a session
        can run.
    """
    graph = tf.compat.v1.get_default_graph()
    for optimizer, loss_scale in self._optimizers:  # noqa: B007
      steps = loss_scale_optimizer.find_built(optimizer, graph).steps
      steps = [x for x in steps if x.op and graph.is_fetchable(x.op)]
      if steps:
        break
    else:
      raise RuntimeError(
        f"LossScaleHook: {self._optimizers[0][0]!r} has no step in this graph: "
        "call minimize() or apply_gradients() before the session is made, and "
        "outside of tf.cond, tf.while_loop and tf.function."
      )
    # Another hook may have added the ops before the graph was finalized.
    key = tuple(x.op for x in steps)
    kept = graphs.keep_on_graph(graph, _Probe, dict)
    if key not in kept:
      count = steps[-1].global_step
      if count is None:
        count = tf.compat.v1.train.get_global_step(graph)
      # The code that calls this method may be in any scope.
      scope = tf.compat.v1.name_scope(_SCOPE)
      with tf.control_dependencies(None), tf.device(None), scope:
        start = [_to_float64(0 if count is None else count), *_read(loss_scale)]
        made = [
          _Probe(i, optimizer, loss_scale, x) for i, x in enumerate(steps)
        ]
        kept[key] = tf.stack(start), made
    if self._probes is not kept[key][1]:
      self._start, self._probes = kept[key]
      self._known.clear()

  def after_create_session(self, session: Any, coord: Any) -> None:
    """Starts anew: the session may go on from another checkpoint."""
    del coord
    self.end(session)

  def before_run(self, run_context: Any) -> _Args | None:
    """Asks for what a step did, if this run does one."""
    args = run_context.original_args
    # Most runs repeat one op alone, and even the key below takes a while.
    is_usual = self._log.is_open and not args.feed_dict
    found = self._known.get(id(args.fetches)) if is_usual else None
    if found is not None:
      return found[1]
    session = run_context.session
    if not self._probes or self._probes[0].op.graph is not session.graph:
      self.end(session)
      with session.graph.as_default():
        self.begin()
    # Programs repeat their runs, so the answers are kept.
    fetched, fed = graphs.list_leaves(args.fetches), list(args.feed_dict or ())
    items = [*fetched, *fed]
    key = session.graph.version, len(fed), *map(id, items)
    found = self._known.get(key)
    if found is None:
      if len(self._known) >= _MOST_KNOWN:
        self._known.clear()
      # The items are kept alive, because the key has their ids.
      found = items, _choose_fetches(session.graph, self._probes, fetched, fed)
      self._known[key] = found
    if isinstance(args.fetches, (tf.Operation, tf.Tensor)) and not fed:
      self._known[id(args.fetches)] = found
    if found[1] is not None and not self._log.is_open:
      with self._lock:
        count, *state = session.run(self._start).tolist()
        if not self._log.is_open:
          self._log.open(int(count), *state)
    return found[1]

  def after_run(self, run_context: Any, run_values: Any) -> None:
    """Takes note of what a step did.

    Raises:
      StuckError: The run is stuck, and `on_stuck` is "raise".
    """
    found = run_values.results
    if found is None:
      return
    for values in found if isinstance(found, list) else [found]:
      index, applied, ends, *state = values.tolist()
      if not ends:
        continue
      outcome = self._probes[int(index)].interpret(bool(applied), state)
      with self._lock:
        if self._log.is_open and self._log.add(outcome):
          self.stop_requested = True
          run_context.request_stop()

  def end(self, session: Any) -> None:
    """Writes the last step and closes the file."""
    with self._lock:
      self._log.close()

  def run(
    self,
    session: Any,
    fetches: Any,
    feed_dict: Any = None,
    options: Any = None,
    run_metadata: Any = None,
  ) -> Any:
    """Runs fetches in a plain session, and watches the step if there is one.

    The other arguments and the result are those of `Session.run`. Call
    `end(session)` at last. With `on_stuck="stop"`, look at `stop_requested`
    after each step.

    Raises:
      StuckError: The run is stuck, and `on_stuck` is "raise".
    """
    context = tf.compat.v1.train.SessionRunContext(
      _Args(fetches, feed_dict), session
    )
    own = self.before_run(context)
    if own is None:
      return session.run(fetches, feed_dict, options, run_metadata)
    results, seen = session.run(
      [fetches, own.fetches], feed_dict, options, run_metadata
    )
    values = tf.compat.v1.train.SessionRunValues(seen, options, run_metadata)
    self.after_run(context, values)
    return results


class _Probe:
  """The ops that tell a session what one call of `apply_gradients` did.

  Attributes:
    op: The op that does the step.
    state: A float64 vector: the probe's index, whether the step was applied,
      whether the call ended a step, and the state after it as `_read` has it.
    fetch: The same vector. If the step was skipped, a number for each gradient
      follows: 1 if that gradient is not finite.
    gradients: The tensors that `fetch` needs.
  """

  def __init__(
    self, index: int, optimizer: Any, loss_scale: Any, step: _Step
  ) -> None:
    """Adds the ops to the current graph."""
    self.op = step.op
    with tf.control_dependencies([self.op]):
      after_step = _read(loss_scale)
    applied = tf.convert_to_tensor(step.applied)
    about = [_to_float64(x) for x in (index, applied, step.ends)]
    self._counts = len(after_step) > 1
    self.state = self.fetch = tf.stack([*about, *after_step])
    pairs = _list_gradients(optimizer, step)
    own = [] if control_flow.is_known(applied) else list(pairs)
    own.sort(key=lambda pair: pair[1].device)
    self._names = [name for name, _ in own]
    self.gradients = [value for _, value in own]
    for device, values in itertools.groupby(self.gradients, lambda x: x.device):
      self.fetch = _append_if_skipped(applied, self.fetch, [*values], device)

  def interpret(self, applied: bool, values: list[float]) -> _step_log.Outcome:
    """Returns what a step did, by the state and the flags that were fetched."""
    scale, *flags = values
    good_steps = flags.pop(0) if self._counts else None
    if applied:
      return _step_log.Outcome(0, scale, good_steps)
    bad = [name for name, flag in zip(self._names, flags) if flag]
    culprits = tuple(dict.fromkeys(bad)) if flags else None
    return _step_log.Outcome(1, scale, good_steps, culprits)


def _read(loss_scale: Any) -> list[tf.Tensor]:
  """Returns the state: the loss scale, and the good steps if it counts them."""
  found = [_to_float64(loss_scale())]
  count = graph_weights.list_weights(loss_scale).get("good_steps")
  is_count = count is not None and count.shape.rank == 0
  return [*found, _to_float64(count)] if is_count else found


def _to_float64(value: Any) -> tf.Tensor:
  """Returns the value of a variable, tensor or number as a float64 scalar."""
  # A plain conversion of a reference variable returns an older read op.
  read_now = getattr(value, "read_value", None)
  value = tf.convert_to_tensor(read_now() if callable(read_now) else value)
  if value.shape.rank != 0:
    value = tf.reshape(value, [])  # A user's loss scale may be of shape [1].
  return tf.cast(value, tf.float64)


def _list_gradients(
  optimizer: Any, step: _Step
) -> Iterator[tuple[str, tf.Tensor]]:
  """Yields the names of variables, and gradients that may be at fault.

  A clip by the global norm makes all gradients NaN if one is. So these are the
  gradients that `compute_gradients` returned, if the step depends on them.
  """
  ancestors = graphs.list_ancestors([step.op])
  graph = step.op.graph

  def find(gradients: Iterable[Any]) -> list[tf.Tensor]:
    values = [getattr(x, "values", x) for x in gradients]  # Of IndexedSlices.
    # The probe must not make a session run other ops than the step's.
    values = [x for x in values if isinstance(x, tf.Tensor)]
    return [x for x in values if x.op in ancestors and graph.is_fetchable(x.op)]

  computed: dict[Any, list[Any]] = {}
  built = loss_scale_optimizer.find_built(optimizer, graph)
  for gradient, variable in built.computed:
    computed.setdefault(variable.ref(), []).append(gradient)
  names = loss_scale_optimizer.name_variables(step.pairs)
  for name, (given, variable) in zip(names, step.pairs):
    for value in find(computed.get(variable.ref(), ())) or find(given):
      yield name, value


def _append_if_skipped(
  applied: tf.Tensor, old: tf.Tensor, values: list[tf.Tensor], device: str
) -> tf.Tensor:
  """Appends to a vector which gradients are not finite, if a step is skipped.

  The op that looks at the gradients is dead in a good step, because one of its
  inputs is. As inputs of a branch, each gradient would cost an op.
  """

  def append(old: tf.Tensor, *values: tf.Tensor) -> tf.Tensor:
    bad = [~finite.are_elements_finite([value]) for value in values]
    return tf.concat([old, tf.cast(bad, tf.float64)], 0)

  specs = [tf.TensorSpec(x.shape, x.dtype) for x in values]
  # AutoGraph would only take time.
  function = tf.function(append, autograph=False).get_concrete_function(
    tf.TensorSpec([None], tf.float64), *specs
  )
  skipped, good = tf.raw_ops.Switch(data=old, pred=applied)
  with tf.device(device or None):
    # A case, because TensorFlow inlines plain calls, and the ops that do not
    # need `skipped` would run.
    (longer,) = tf.raw_ops.StatelessCase(
      branch_index=0,
      input=[skipped, *values],
      Tout=[tf.float64],
      branches=[function],
    )
    return tf.raw_ops.Merge(inputs=[good, longer])[0]


def _choose_fetches(
  graph: tf.Graph, probes: Sequence[_Probe], fetched: Any, fed: Any
) -> _Args | None:
  """Returns what to fetch for the steps that a run does; None if for none."""
  elements = graphs.list_elements(graph, fed)
  known = {x.ref() for x in elements if isinstance(x, tf.Tensor)}
  ops = [
    getattr(x, "op", x)
    for x in graphs.list_elements(graph, fetched)
    if isinstance(x, tf.Operation) or x.ref() not in known
  ]
  ancestors = graphs.list_ancestors(ops, known)
  chosen = []
  for probe in probes:
    if probe.op in ancestors:
      # A run that feeds gradients need not compute the others.
      runs = (x.op in ancestors or x.ref() in known for x in probe.gradients)
      chosen.append(probe.fetch if all(runs) else probe.state)
  if not chosen:
    return None
  # A session takes less time for a tensor than for a list.
  return _Args(chosen[0] if len(chosen) == 1 else chosen)

"""Weights that every graph has its own of, for an object that outlives them."""

from __future__ import annotations

import contextlib
import copy
import threading
from typing import Any

import tensorflow.compat.v2 as tf

from tf_compat_lossscale._core.tf import graphs
from tf_compat_lossscale._core.tf import tracking

# Held while weights are looked up: an object's first use in a graph makes them,
# and several threads may build one graph. Held while they change eagerly, too.
_LOCK = threading.RLock()


class _State:
  """A trackable's variables in one graph, and restores that wait for more."""

  def __init__(self) -> None:
    self.weights: dict[str, tf.Variable] = {}
    self.deferred: dict[str, list[Any]] = {}


class _Recipes:
  """How to make each weight again in another graph: name -> arguments.

  Its identity stands for its owner in what graphs keep: a user's loss scale
  may define equality as it likes.
  """

  def __init__(self) -> None:
    self.by_name: dict[str, tuple[str, Any, Any]] = {}
    self.eager_state = _State()

  def __deepcopy__(self, memo: dict[int, Any]) -> _Recipes:
    clone = _Recipes()
    clone.by_name.update(self.by_name)
    if tf.executing_eagerly():  # Elsewhere a variable cannot be copied.
      clone.eager_state.weights = copy.deepcopy(self.eager_state.weights, memo)
    return clone


class GraphWeights(tracking.Trackable):
  """A trackable that has its variables anew in every graph it is used in.

  The variables of a graph are kept by that graph, so that it can be collected
  although this object lives on.
  """

  @property
  def _recipes(self) -> _Recipes:
    # Made on first use: a subclass may leave out `super().__init__()`.
    return self.__dict__.setdefault("_weight_recipes", _Recipes())

  @property
  def _state(self) -> _State:
    graph = graphs.current_graph()
    if graph is None:
      return self._recipes.eager_state
    return graphs.state_on_graph(graph, self._recipes, _State)

  @property
  def _weights(self) -> dict[str, tf.Variable]:
    """The weights that exist in the current graph (eagerly: outside of any)."""
    return self._state.weights

  def _add_weight(
    self, name: str, initial_value: Any, dtype: tf.DType | None = None
  ) -> tf.Variable:
    """Adds a scalar or other state to this object, and to its checkpoints.

    Args:
      name: The variable's name, under the enclosing name scope, and its key in
        object-based checkpoints.
      initial_value: A number, an array or a function of no arguments. Other
        graphs start from it too, so it should not be a graph's tensor.
      dtype: `tf.float32` or `tf.int64`, as old releases wrote them; by default
        the dtype of `initial_value`.

    Returns:
      A resource variable, untrainable and never aggregated over replicas. It
      belongs to the current graph: in code that may run in another one, get it
      by `_get_weight(name)`.

    Raises:
      RuntimeError: This object has a weight of that name in this graph.
    """
    if name in self._weights:
      raise RuntimeError(
        f"Duplicate weight {name!r}: {type(self).__name__} has one of that "
        "name in this graph already; names must differ within a graph."
      )
    # Lifted, since a cond, a loop or a function cannot own a variable.
    with tf.init_scope():
      weight = self._make_weight(name, name, initial_value, dtype)
    full_name = weight.name.split(":")[0]
    self._recipes.by_name[name] = (full_name, initial_value, dtype)
    return weight

  def _get_weight(self, name: str) -> tf.Variable:
    """The weight of that name in the current graph, made there if need be.

    Args:
      name: A name that `_add_weight` was given, in whichever graph.

    Returns:
      The variable, called as the first one was, at its initial value (or at
      what a checkpoint that was restored here holds for it). If this is the
      first use in this graph, all other weights are made there too.

    Raises:
      KeyError: No such weight was ever added.
    """
    recipes = self._recipes.by_name
    with _LOCK:
      if name in recipes and name not in self._weights:
        # All at once, so that what is saved does not hang on what was asked
        # for; and named for where they were first made, not for who asks.
        with tf.init_scope(), tf.compat.v1.name_scope(None):
          for key in [key for key in recipes if key not in self._weights]:
            self._make_weight(key, *recipes[key])
      return self._weights[name]

  def _initial_value(self, name: str) -> tf.Tensor:
    """What the weight of that name starts from in a graph that has it not.

    Args:
      name: A name that `_add_weight` was given.

    Raises:
      KeyError: No such weight was ever added.
    """
    _, value, dtype = self._recipes.by_name[name]
    value = value() if callable(value) else value
    return tf.convert_to_tensor(value, dtype)

  def _exclusively(self) -> contextlib.AbstractContextManager[Any]:
    """Returns a context manager that one thread at a time may enter eagerly.

    In graphs it does nothing: an update there runs when the graph does.
    """
    return _LOCK if tf.executing_eagerly() else contextlib.nullcontext()

  def _make_weight(
    self, key: str, name: str, initial_value: Any, dtype: tf.DType | None
  ) -> tf.Variable:
    weight = tf.compat.v1.Variable(
      initial_value,
      name=name,
      dtype=dtype,
      trainable=False,
      use_resource=True,
      synchronization=tf.VariableSynchronization.AUTO,
      aggregation=tf.VariableAggregation.NONE,
    )
    self._state.weights[key] = weight
    self._handle_deferred_dependencies(name=key, trackable=weight)
    return weight

  def _trackable_children(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
    """For checkpoints: this graph's weights, and whatever else is tracked."""
    children = dict(sorted(self._weights.items()))
    children.update(super()._trackable_children(*args, **kwargs))
    return children

  def _lookup_dependency(self, name: str, *args: Any, **kwargs: Any) -> Any:
    """For checkpoints: what is called `name` here, or None."""
    found = super()._lookup_dependency(name, *args, **kwargs)
    return self._weights.get(name) if found is None else found

  @property
  def _deferred_dependencies(self) -> dict[str, list[Any]]:
    """For checkpoints: restores that wait for weights of this graph."""
    return self._state.deferred

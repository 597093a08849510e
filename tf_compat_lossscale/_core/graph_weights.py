# SPDX-License-Identifier: Apache-2.0
"""Objects that have variables of their own in each graph that uses them."""

from __future__ import annotations

from collections.abc import Callable
import copy
import threading
from typing import Any
from typing import Generic
from typing import overload
from typing import TypeVar

import tensorflow.compat.v2 as tf

from tf_compat_lossscale._core.tf import graphs
from tf_compat_lossscale._core.tf import tracking

_T = TypeVar("_T")

# Several threads may build one graph, and each may be the first to look up a
# weight there, which creates the weight. Updates take the lock, too, because
# eager threads take steps at the same time.
LOCK = threading.RLock()


class _State:
  """The variables of an object in one graph, and restores that wait for more.

  Attributes:
    weights: The variables, by the names that `_add_weight` was given.
    deferred: For `tf.train.Checkpoint`: restores of variables that this graph
      does not have yet, by the same names.
  """

  def __init__(self) -> None:
    self.weights: dict[str, tf.Variable] = {}
    self.deferred: dict[str, list[Any]] = {}


class _Recipes:
  """Recipes by which further graphs create the weights of one object.

  A graph uses this as the key of the object's state, not the object itself: a
  user's loss scale may define equality and hash as it likes.

  Attributes:
    by_name: For each weight, its variable's full name, initial value and dtype.
    eager_state: The variables outside of all graphs.
  """

  def __init__(self) -> None:
    self.by_name: dict[str, tuple[str, Any, Any]] = {}
    self.eager_state = _State()

  def __deepcopy__(self, memo: dict[int, Any]) -> _Recipes:
    clone = _Recipes()  # A restore waits for the original alone.
    clone.by_name.update(self.by_name)
    if tf.executing_eagerly():  # TensorFlow copies no variable of a graph.
      clone.eager_state.weights = copy.deepcopy(self.eager_state.weights, memo)
    return clone


class DefaultProperty(Generic[_T]):
  """A property that yields to an attribute of the instance.

  A program's subclass may have set an attribute of that name before this
  package defined the property. A plain property would refuse the assignment.
  """

  def __init__(self, read: Callable[[Any], _T]) -> None:
    self._read = read
    self.__doc__ = read.__doc__

  @overload
  def __get__(self, owner: None, cls: type) -> DefaultProperty[_T]: ...

  @overload
  def __get__(self, owner: object, cls: type) -> _T: ...

  def __get__(self, owner: Any, cls: type) -> Any:
    return self if owner is None else self._read(owner)


def make_weight_property(name: str) -> Any:
  """Returns a DefaultProperty: the weight of a name in the current graph."""
  return DefaultProperty(lambda owner: owner._get_weight(name))


def forget(owner: Any, *names: str) -> None:
  """Takes away attributes that a subclass set before the constructor did.

  The names are those of `DefaultProperty`s that the old constructor set.
  """
  for name in names:
    vars(owner).pop(name, None)


class GraphWeights(tracking.WeightsByGraph):
  """A trackable that has its variables anew in each graph that uses it.

  Each graph keeps its variables itself. So a graph can be collected although
  this object lives on. A program's subclass may have attributes of its own, so
  names here say `graph` or `tracked`.
  """

  # Whether nobody has read this loss scale yet. Only classes whose methods read
  # all weights by `_get_weight` start with True.
  _is_unread = False

  @property
  def _graph_recipes(self) -> _Recipes:
    # Created on first use: a subclass may leave out `super().__init__()`.
    if "_weight_recipes" not in self.__dict__:
      self.__dict__["_weight_recipes"] = _Recipes()
    recipes: _Recipes = self.__dict__["_weight_recipes"]
    return recipes

  @property
  def _graph_state(self) -> _State:
    graph = graphs.find_graph()
    if graph is None:
      return self._graph_recipes.eager_state
    return graphs.keep_on_graph(graph, self._graph_recipes, _State)

  @property
  def _tracked_weights(self) -> dict[str, tf.Variable]:
    return self._graph_state.weights

  @DefaultProperty
  def _weights(self) -> dict[str, tf.Variable]:
    """The tracked weights by TensorFlow's name, which a program may set."""
    return self._tracked_weights

  # None for TensorFlow's default, which depends on the program.
  _use_resource: bool | None = True

  def _add_weight(
    self, name: str, initial_value: Any, dtype: tf.DType | None = None
  ) -> tf.Variable:
    """Adds a variable to this object's state and to its checkpoints.

    Args:
      name: The variable's name, under the enclosing name scope, and its key in
        object-based checkpoints.
      initial_value: A number, an array or a function of no arguments. Other
        graphs start from the same value, so it cannot be a tensor of a graph.
      dtype: A dtype such as `tf.float32` or `tf.int64`; by default the dtype of
        `initial_value`.

    Returns:
      A resource variable, untrainable and never aggregated over replicas. The
      variable belongs to the current graph. Code that may run in another graph
      calls `_get_weight(name)` instead.

    Raises:
      RuntimeError: This object has a weight of that name in this graph.
    """
    if name in self._tracked_weights:
      raise RuntimeError(
        f"Duplicate weight {name!r}: {type(self).__name__} has one of that "
        "name in this graph already; names must differ within a graph."
      )
    # A cond, a loop or a function cannot own a variable.
    with tf.init_scope():
      weight = self._create_weight(name, name, initial_value, dtype)
    full_name = weight.name.split(":")[0]
    self._graph_recipes.by_name[name] = (full_name, initial_value, dtype)
    return weight

  def _get_weight(self, name: str) -> tf.Variable:
    """Returns the weight of that name in the current graph.

    If this graph has no such weight yet, all weights of this object are created
    there: under the names that they were first given, and at their initial
    values, or at the values of a checkpoint that was restored here before.

    Raises:
      KeyError: `_add_weight` was never given that name, in any graph.
    """
    self._is_unread = False
    with LOCK:
      weights = self._graph_state.weights
      if name not in weights:
        # All weights, so that a checkpoint does not depend on the weights that
        # were read; without a name scope, so that their names do not depend on
        # the reader.
        with tf.init_scope(), tf.compat.v1.name_scope(None):
          for key, recipe in self._graph_recipes.by_name.items():
            if key not in weights:
              self._create_weight(key, *recipe)
      return weights[name]

  def _create_weight(
    self, key: str, name: str, initial_value: Any, dtype: tf.DType | None
  ) -> tf.Variable:
    """Creates a variable in this graph, and restores it if a restore waits."""
    weight = tf.compat.v1.Variable(
      initial_value,
      name=name,
      dtype=dtype,
      trainable=False,
      use_resource=self._use_resource,
      synchronization=tf.VariableSynchronization.AUTO,
      aggregation=tf.VariableAggregation.NONE,
    )
    self._graph_state.weights[key] = weight
    self._restore_waiting(key, weight)
    return weight


def list_weights(owner: GraphWeights) -> dict[str, tf.Variable]:
  """Returns the weights that an object has in the current graph, by name."""
  return owner._tracked_weights


# The attribute that `distributed.agree` sets: a function that takes whether the
# gradients of this worker are finite, and returns whether those of all are.
AGREEMENT = "_agreement"


def find_owner(loss_scale: Any) -> Any:
  """Returns what has the weights of a loss scale, and its agreement.

  That is the loss scale itself, or the manager of `tf.contrib` in it.
  """
  return getattr(loss_scale, "contrib_manager", loss_scale)


def note_read(loss_scale: Any) -> bool:
  """Notes that a loss scale was read, and returns whether it was unread."""
  owner = find_owner(loss_scale)
  is_unread: bool = getattr(owner, "_is_unread", False)
  if is_unread:
    owner._is_unread = False
  return is_unread


def compute_initial_value(owner: GraphWeights, name: str) -> tf.Tensor:
  """Returns the value from which a weight starts in a new graph.

  Raises:
    KeyError: `_add_weight` was never given that name.
  """
  _, value, dtype = owner._graph_recipes.by_name[name]
  value = value() if callable(value) else value
  return tf.convert_to_tensor(value, dtype)

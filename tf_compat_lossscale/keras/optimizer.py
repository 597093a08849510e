# SPDX-License-Identifier: Apache-2.0
"""Defines the optimizer of Keras 2 that scales the loss.

Keras 2 has legacy optimizers and newer ones, and a loss-scale optimizer class
for each kind. `LossScaleOptimizer` stands for both: when its `__init__` gets
the optimizer to wrap, which a subclass may make itself, the instance's class
becomes a subclass of its own class and of Keras's class for that kind. Two
plain classes would not do: `isinstance(optimizer, Mine)` must hold for
optimizers of both kinds that a program's `class Mine(LossScaleOptimizer)`
wraps, and Keras checks for its own two classes, which have no common base with
the methods of an optimizer.
"""

from __future__ import annotations

import inspect
from typing import Any

from absl import logging
import tensorflow.compat.v2 as tf

from tf_compat_lossscale import gradients
from tf_compat_lossscale import graph_rewrite
from tf_compat_lossscale import loss_scale as loss_scale_lib
from tf_compat_lossscale import loss_scale_optimizer
from tf_compat_lossscale._core import graph_weights
from tf_compat_lossscale._core import optimizer_kinds
from tf_compat_lossscale._core import pair_checks
from tf_compat_lossscale._core.tf import control_flow
from tf_compat_lossscale._core.tf import graphs
from tf_compat_lossscale.keras import _keras2
from tf_compat_lossscale.keras import _loss_scales
from tf_compat_lossscale.keras import _skipped_steps

_Base = _keras2.BaseLossScaleOptimizer
_KINDS = {
  _keras2.LegacyOptimizer: _keras2.LossScaleOptimizerOfLegacy,
  _keras2.Optimizer: _keras2.LossScaleOptimizerOfNew,
}
_FIXED = "_fixed_scale"  # The LossScale, if it never changes.
_READ = "_is_loss_scale_read"  # Whether the program has read the loss scale.


class _ByKind(type(_Base)):  # type: ignore[misc]
  """The metaclass that makes a subclass for each kind of optimizer.

  Keras's own metaclass demands that the first argument of every subclass is an
  optimizer named `inner_optimizer`.
  """

  def __call__(cls, *args: Any, **kwargs: Any) -> Any:
    made = type.__call__(cls, *args, **kwargs)
    if isinstance(made, cls) and not isinstance(made, tuple(_KINDS.values())):
      raise TypeError(
        f"{cls.__qualname__}.__init__ must call super().__init__(optimizer, "
        "loss_scale), but it wrapped no optimizer."
      )
    return made

  def of_kind(cls, optimizer: Any, is_keras_own: bool = True) -> type:
    """Returns the subclass of `cls` for an optimizer to wrap.

    If `is_keras_own`, Keras's own class could have the loss scale. Then files
    name Keras's class, so they load without this package.

    Raises:
      TypeError: `optimizer` is no optimizer of Keras 2, or wraps another, or
        `cls` is made for optimizers of the other kind.
    """
    if isinstance(optimizer, _Base):
      raise TypeError(
        "LossScaleOptimizer cannot wrap another LossScaleOptimizer, but got "
        f"{optimizer!r}."
      )
    for kind, concrete in _KINDS.items():
      if isinstance(optimizer, kind):
        # A class for one kind leads to the class for the other kind.
        origin = cls.__dict__.get("_of_any_kind", cls)
        return origin._derive(concrete, is_keras_own)
    raise TypeError(
      "optimizer must be an optimizer of Keras 2 "
      f"({_keras2.keras.__name__}), but got "
      f"{optimizer_kinds.show(optimizer)}."
      f"{optimizer_kinds.advise_for_keras(optimizer)} If "
      "tf.keras is Keras 3, call tf_compat_lossscale.use_keras_2() before "
      "TensorFlow is imported, or use keras.optimizers.LossScaleOptimizer."
    )

  def _derive(cls, concrete: type, is_keras_own: bool) -> type:
    """Returns the subclass of `cls` and of a class of Keras; makes it once."""
    if issubclass(cls, concrete):
      return cls
    if issubclass(cls, tuple(_KINDS.values())):
      raise TypeError(
        f"{cls.__qualname__} is based on a class for the other kind of "
        f"optimizers than {concrete.__qualname__} is: base it on "
        "tf_compat_lossscale.keras.LossScaleOptimizer, which is for both."
      )
    is_keras_own = is_keras_own and cls is LossScaleOptimizer
    key = f"_{concrete.__name__}_{is_keras_own}"
    if key not in cls.__dict__:
      named = concrete if is_keras_own else cls
      names = {
        "__doc__": cls.__doc__,
        "__module__": named.__module__,
        "__qualname__": named.__qualname__,
        "_of_any_kind": cls,
      }
      make: Any = type(cls)
      made = make(named.__name__, (cls, concrete), names)
      if not is_keras_own:
        _keras2.register_like(made, cls)
      setattr(cls, key, made)
    return cls.__dict__[key]


class LossScaleOptimizer(
  _Base,  # type: ignore[misc, valid-type]
  metaclass=_ByKind,
):
  """Wraps a Keras 2 optimizer, and scales the loss for it.

  This class is a `tf.keras.mixed_precision.LossScaleOptimizer` of Keras 2. Only
  the constructor differs: Keras's class takes no loss scale.

  ```
  opt = LossScaleOptimizer(tf.keras.optimizers.legacy.Adam(), "dynamic")
  with tf.GradientTape() as tape:
    loss = opt.get_scaled_loss(compute_loss())
  grads = opt.get_unscaled_gradients(tape.gradient(loss, variables))
  opt.apply_gradients(zip(grads, variables))
  ```

  `minimize` and `Model.fit` scale and unscale by themselves. If Keras's class
  could have the loss scale, configs, files and checkpoints are the same as
  those of Keras since TensorFlow 2.3. Checkpoints of TensorFlow 1.15 to 2.2
  restore, too.
  """

  def __init__(
    self, optimizer: Any, loss_scale: loss_scale_lib.Identifier
  ) -> None:
    """Wraps an optimizer.

    Args:
      optimizer: A legacy optimizer of Keras 2, or a newer one.
      loss_scale: 'dynamic', a number for a fixed scale, a LossScale, or the
        config of a loss scale. The optimizer calls the `update` of a LossScale
        in each step. `dynamic_growth_steps` is the loss scale's
        `increment_period` or `growth_interval`, `dynamic_counter` its
        `good_steps`; `initial_scale` is its `initial_loss_scale`. Each is None
        if the loss scale has none. Of a `FixedLossScale` and of a
        `DynamicLossScale` with the multiplier 2, the optimizer takes the
        numbers alone, as in TensorFlow 2.4 to 2.8.

    Raises:
      TypeError: `optimizer` is no optimizer of Keras 2, or `loss_scale` is
        based on a class of TensorFlow's own.
      ValueError: `loss_scale` is no loss scale, or `optimizer` is Horovod's
        with `backward_passes_per_step` above 1.
    """
    optimizer_kinds.check_passes(optimizer)
    scale = _loss_scales.find_for_optimizer(loss_scale)
    is_keras_own = _loss_scales.is_keras_own(scale)
    cls = type(self).of_kind(optimizer, is_keras_own)
    # Keras's `__setattr__` needs an optimizer that is wrapped.
    object.__setattr__(self, "__class__", cls)
    is_fixed = _loss_scales.is_fixed(scale)
    fixed = scale.get_config()["loss_scale_value"] if is_fixed else 1.0
    super().__init__(optimizer, dynamic=False, initial_scale=fixed)
    self.__dict__[_FIXED] = scale if is_fixed else None
    self._follow(None if is_fixed else scale)

  @classmethod
  def stop_counting_skips(cls, optimizer: Any) -> list[tuple[Any, int]]:
    """Makes a loss-scale optimizer count steps as TensorFlow 1.14 to 2.2 did.

    The optimizer is of the legacy kind and has a dynamic loss scale. If its
    class is Keras's own, its class becomes this one, and its loss scale starts
    anew.

    Returns:
      Pairs of a variable and the value to assign to it.
    """
    if not isinstance(optimizer, LossScaleOptimizer):
      scale = loss_scale_lib.DynamicLossScale(
        optimizer.initial_scale, optimizer.dynamic_growth_steps
      )
      kind = cls.of_kind(optimizer.inner_optimizer)
      object.__setattr__(optimizer, "__class__", kind)
      optimizer._follow(scale)
    steps: _skipped_steps.SkippedSteps = optimizer._skipped_steps
    return steps.stop_counting()

  def follow_skips(
    self, nodes: Any, children: dict[str, int]
  ) -> list[tuple[Any, int]]:
    """Makes this optimizer count skipped steps as a checkpoint's did.

    The arguments are those of `_skipped_steps.leave_skips_uncounted`.

    Returns:
      Pairs of a variable and the value to assign to it.
    """
    if self._skipped_steps is None or "loss_scale" not in children:
      return []
    steps: _skipped_steps.SkippedSteps = self._skipped_steps
    return steps.follow(nodes, children)

  def _follow(self, scale: loss_scale_lib.LossScale | None) -> None:
    """Sets the loss scale, and makes what old checkpoints are restored into.

    The scale is None if it is fixed: then Keras's own class has it.
    """
    # Keras warns at each step, also if `loss_scale` was read. So does this
    # class, once.
    self.__dict__.update(_keras2.CALLED)
    self.__dict__["_skipped_steps"] = None
    notes = _loss_scales.SkipNotes(scale or vars(self)[_FIXED])
    self.__dict__["skip_notes"] = notes
    optimizer = self.inner_optimizer
    is_legacy = isinstance(optimizer, _keras2.LegacyOptimizer)
    if is_legacy:
      old_path = _skipped_steps.RestoredAsBaseOptimizer(optimizer)
      self._track_trackable(old_path, _skipped_steps.BASE, overwrite=True)
    if scale is None:
      return
    # Keras looks at attributes that are set, and would track the state.
    self.__dict__["_loss_scale"] = state = _loss_scales.State(self, scale)
    self._track_trackable(scale, "loss_scale", overwrite=True)
    state.counter  # noqa: B018 (In a graph, this makes the variables.)
    for weight in graph_weights.list_weights(scale).values():
      _keras2.initialize_in_sessions(weight)
    if is_legacy:
      notes.rule = _skipped_steps.SkippedSteps(scale)
      self.__dict__["_skipped_steps"] = notes.rule

  @property
  def loss_scale(self) -> Any:
    """The loss scale: a float32 scalar tensor, which also is a LossScale.

    The tensor has the value of the read, as in TensorFlow 2.4 to 2.8. As in 2.0
    to 2.3, a call, `optimizer.loss_scale()`, returns the current value, and a
    LossScale's methods and attributes are there. Eagerly, `tf.is_tensor` says
    that this is a tensor, and TensorFlow uses it as one, but it is no instance
    of `tf.Tensor`, as a variable is none; `tf.convert_to_tensor` returns one.
    """
    self.__dict__[_READ] = True
    scale = self._loss_scale.scale if self.dynamic else vars(self)[_FIXED]
    return _loss_scales.mark_read(super().loss_scale, scale)

  @property
  def last_step_applied(self) -> tf.Tensor:
    """Whether the step was applied, a bool scalar; False if it was skipped.

    In a graph, also in that of a `tf.function`, the tensor belongs to the last
    call of `apply_gradients` there. Eagerly, it is the value of the last eager
    step. `Model.fit` takes its steps in a `tf.function`: a `train_step` may
    return the tensor among its logs.

    Raises:
      RuntimeError: There was no step yet in this graph, or eagerly.
    """
    return loss_scale_optimizer.read_last_applied(self)

  def get_scaled_loss(self, loss: Any) -> Any:
    """Multiplies a loss by the loss scale.

    Args:
      loss: A floating-point tensor, or a function that returns one.

    Returns:
      The scaled loss, of the shape and dtype of `loss`; or a function that
      reads the loss scale when it is called.
    """
    if callable(loss):
      return lambda: self.get_scaled_loss(loss())
    return gradients.scale(loss, tf.convert_to_tensor(self.loss_scale))

  def get_unscaled_gradients(self, grads: Any) -> list[Any]:
    """Divides gradients of the scaled loss by the loss scale.

    Args:
      grads: Gradients of the scaled loss; some may be None.

    Returns:
      The gradients of the loss itself, each of its own shape and dtype.
    """
    return gradients.unscale(grads, tf.convert_to_tensor(self.loss_scale))

  def apply_gradients(
    self, grads_and_vars: Any, *args: Any, **kwargs: Any
  ) -> Any:
    """Applies unscaled gradients, if the loss scale says that they should be.

    A skipped step is counted in `iterations`, unless training goes on from a
    checkpoint of TensorFlow 1.14 to 2.2. Those releases did not count skipped
    steps, and Adam's bias correction goes by `iterations`. New checkpoints keep
    the rule that the state began with.

    Args:
      grads_and_vars: (gradient, variable) pairs.
      *args: The other arguments of the method of Keras's own class.
      **kwargs: Its keyword arguments.

    Returns:
      The result of that method.
    """
    pairs = list(grads_and_vars)
    if tf.distribute.in_cross_replica_context():
      return super().apply_gradients(pairs, *args, **kwargs)  # Which raises.
    if tf.distribute.get_strategy().num_replicas_in_sync > 1:
      pairs = list(pair_checks.fill(pairs))
    self._warn_if_unscaled(pairs)
    trained = [(grad, var) for grad, var in pairs if grad is not None]
    if self._skipped_steps is not None and graphs.find_graph() is None:
      # A wrapper may create variables when it applies gradients. In a branch of
      # a `tf.function` that does not run in the first step, their initial
      # values would be lost.
      with tf.init_scope():
        weights = [var for _, var in trained]
        _keras2.create_weights(self.inner_optimizer, weights)
    if self.dynamic:
      names = loss_scale_optimizer.name_variables(trained)
      state = _loss_scales.State(self, self._loss_scale.scale, names)
      note = lambda: self.skip_notes.write(state)  # noqa: E731
      twin = _keras2.tell_skips(self, state, note)
      apply = super(LossScaleOptimizer, twin).apply_gradients
      before = dict(vars(twin))
      result = apply(pairs, *args, **kwargs)
      # A subclass's methods may have set attributes.
      changed = [
        x for x in vars(twin).items() if before.get(x[0], x) is not x[1]
      ]
      self.__dict__.update(changed)
    else:
      result = super().apply_gradients(pairs, *args, **kwargs)
      # The step is always applied, and Keras does not ask.
      loss_scale_optimizer.keep_step_of_replica(self, None, (), None)
    if self._skipped_steps is not None and graphs.find_graph() is not None:
      result = self._take_back(result, self.last_step_applied)
    return result

  def _warn_if_unscaled(self, pairs: Any) -> None:
    """Logs a warning, once, if nothing can have scaled the loss."""
    if _READ in vars(self) or not self.dynamic:
      return
    self.__dict__[_READ] = True
    if not pair_checks.are_zero(pairs):
      logging.warning(
        "You forgot to call get_scaled_loss() for the loss and "
        "get_unscaled_gradients() for its gradients: apply_gradients() got "
        "gradients, but nobody read the loss scale, so small ones may be 0."
      )

  def finish_update(self, update: Any, applied: Any) -> Any:
    """Adds what a skipped step needs to what `LossScale.update` returned."""
    # In graphs for sessions, the first op of the step that uses `iterations`
    # gives it its name: that is the op that applies gradients.
    if self._skipped_steps is None or graphs.find_graph() is not None:
      return update
    return self._take_back(update, applied)

  def _take_back(self, op: Any, applied: Any) -> Any:
    """Returns an op, after which a skipped step counts as the rule says."""
    with tf.name_scope(control_flow.NAME_SCOPE):
      iterations = self.inner_optimizer.iterations
      done = self._skipped_steps.take_back(iterations, applied)
      return loss_scale_optimizer.group([done, op], "step")

  def _lookup_dependency(self, name: str, *args: Any, **kwargs: Any) -> Any:
    if self._skipped_steps is not None and name == "loss_scale":
      return None  # TensorFlow then asks `_deferred_dependencies`.
    return super()._lookup_dependency(name, *args, **kwargs)

  @property
  def _deferred_dependencies(self) -> Any:
    others = super()._deferred_dependencies
    if self._skipped_steps is None:
      return others
    return _skipped_steps.Deferred(self._skipped_steps, others)

  def _trackable_children(
    self, save_type: str = "checkpoint", *args: Any, **kwargs: Any
  ) -> dict[str, Any]:
    children = super()._trackable_children(save_type, *args, **kwargs)
    if self._skipped_steps is not None:
      children = {**children, **self._skipped_steps.children}
    # A SavedModel's functions may take steps.
    if save_type == "savedmodel" and graphs.find_graph() is None:
      children = {**children, **self.skip_notes.list_variables()}
    return children

  def __getattr__(self, name: str) -> Any:
    """Returns an attribute of the wrapped optimizer."""
    inner = vars(self).get("_optimizer")
    return optimizer_kinds.read_of_wrapped(self, inner, name)

  def __copy__(self) -> LossScaleOptimizer:
    """Returns an optimizer that shares the wrapped one and the loss scale."""
    twin = object.__new__(type(self))
    twin.__dict__.update(self.__dict__)
    if self.dynamic:
      state = _loss_scales.State(twin, self._loss_scale.scale)
      twin.__dict__["_loss_scale"] = state
    return twin

  def get_config(self) -> dict[str, Any]:
    """Returns the config that Keras's own class has since TensorFlow 2.4.

    If Keras's class could not have the loss scale, the config also has
    'loss_scale'.
    """
    config: dict[str, Any] = super().get_config()
    if self.dynamic and not _loss_scales.is_keras_own(self._loss_scale.scale):
      config["loss_scale"] = _loss_scales.to_config(self._loss_scale.scale)
    return config

  @classmethod
  def from_config(
    cls, config: dict[str, Any], custom_objects: dict[str, Any] | None = None
  ) -> LossScaleOptimizer:
    """Makes an optimizer from a config of any release.

    Args:
      config: `{'optimizer', 'loss_scale'}`, of TensorFlow 2.0 to 2.3, or
        `{'inner_optimizer', 'dynamic', 'initial_scale',
        'dynamic_growth_steps'}`, of later ones, with or without 'loss_scale'.
      custom_objects: More classes for Keras to find: name -> class.

    Returns:
      The optimizer. It wraps a legacy optimizer, unless the config is of a
      newer optimizer.

    Raises:
      TypeError: A subclass does not take the entries of the config.
      ValueError: `config` has other entries.
    """
    others = dict(config)
    if {"inner_optimizer", "dynamic", "initial_scale"} <= set(others):
      inner = others.pop("inner_optimizer")
      loss_scale = others.pop("initial_scale")
      steps = others.pop("dynamic_growth_steps", None)
      if others.pop("dynamic"):
        # Keras wrote None for its default.
        loss_scale = {
          "initial_loss_scale": 2**15 if loss_scale is None else loss_scale,
          "increment_period": 2000 if steps is None else steps,
        }
      loss_scale = others.pop("loss_scale", loss_scale)
    elif {"optimizer", "loss_scale"} <= set(others):
      inner, loss_scale = others.pop("optimizer"), others.pop("loss_scale")
    else:
      raise ValueError(
        "A LossScaleOptimizer's config has 'optimizer' and 'loss_scale', or "
        "'inner_optimizer', 'dynamic' and 'initial_scale', but got "
        f"{config!r}. A subclass whose get_config() returns something else "
        "must have a from_config() of its own."
      )
    entries = {
      "optimizer": _keras2.make_optimizer(inner, custom_objects),
      "loss_scale": _loss_scales.from_config(loss_scale, custom_objects),
      **others,
    }
    signature = inspect.signature(cls.__init__)
    try:
      signature.bind(None, **entries)
    except TypeError:
      raise TypeError(
        f"{cls.__qualname__}.__init__{signature} does not take the entries of "
        f"its config: {', '.join(map(repr, entries))}. Give {cls.__qualname__} "
        "a get_config() and a from_config() of its own."
      ) from None
    return cls(**entries)


# Files with a loss scale that Keras's own class cannot have name this class.
_keras2.keras.utils.register_keras_serializable("tf_compat_lossscale")(
  LossScaleOptimizer
)
for _kind in _KINDS:
  graph_rewrite.register_loss_scale_wrapper(_kind, LossScaleOptimizer, _Base)

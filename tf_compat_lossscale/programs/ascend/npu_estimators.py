# SPDX-License-Identifier: Apache-2.0
"""Ascend's Estimator, its configuration, and hooks."""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf

from tf_compat_lossscale.programs import contrib_modules
from tf_compat_lossscale.programs import loading

_Estimator: Any = loading.load("tf.estimator.Estimator")
_Spec: Any = loading.load("tf.estimator.EstimatorSpec")
_RunConfig: Any = loading.load("tf.estimator.RunConfig")


class NPURunConfig(_RunConfig):
  """A `RunConfig` that takes Ascend's options, too."""

  def __init__(
    self,
    iterations_per_loop: int = 1,
    profiling_config: Any = None,
    model_dir: str | None = None,
    tf_random_seed: int | None = None,
    save_summary_steps: int | None = 0,
    save_checkpoints_steps: int | None = None,
    save_checkpoints_secs: int | None = None,
    session_config: Any = None,
    keep_checkpoint_max: int | None = 5,
    keep_checkpoint_every_n_hours: int = 10000,
    log_step_count_steps: int | None = 100,
    distribute: Any = None,
    *args: Any,
    train_distribute: Any = None,
    eval_distribute: Any = None,
    **options: Any,
  ) -> None:
    """Creates a configuration.

    The arguments that are not listed here are those of
    `tf.estimator.RunConfig`, or options of Ascend's, which have no effect.

    Args:
      iterations_per_loop: The number of steps that an NPU takes before it
        reports. Here every step reports; there are as many steps.
      save_summary_steps: How often summaries are saved; 0 for never.
      save_checkpoints_steps: How often checkpoints are saved, in steps; 100 if
        neither this nor `save_checkpoints_secs` is given.
    """
    del profiling_config, distribute, args
    self.iterations_per_loop = iterations_per_loop
    for name, value in options.items():
      setattr(self, f"_{name}", value)
    if save_checkpoints_steps is None and save_checkpoints_secs is None:
      save_checkpoints_steps = 100
    super().__init__(
      model_dir=model_dir,
      tf_random_seed=tf_random_seed,
      save_summary_steps=save_summary_steps,
      save_checkpoints_steps=save_checkpoints_steps,
      save_checkpoints_secs=save_checkpoints_secs,
      session_config=session_config,
      keep_checkpoint_max=keep_checkpoint_max,
      keep_checkpoint_every_n_hours=keep_checkpoint_every_n_hours,
      log_step_count_steps=log_step_count_steps,
      train_distribute=train_distribute,
      eval_distribute=eval_distribute,
    )


class Options:
  """Options of Ascend's software, which have no effect on other hardware."""

  def __init__(self, *args: Any, **options: Any) -> None:
    """Takes any options."""
    self.args = args
    for name, value in options.items():
      setattr(self, f"_{name}", value)


class NPUEstimatorSpec(_Spec):
  """An `EstimatorSpec` with a function that runs on the host in each step."""

  def __new__(
    cls, *args: Any, host_call: Any = None, **kwargs: Any
  ) -> NPUEstimatorSpec:
    """Creates a specification.

    Args:
      *args: As of `tf.estimator.EstimatorSpec`.
      host_call: A function, and a list or dict of tensors that it is called
        with. The ops that it returns run after each step of training.
      **kwargs: As of `tf.estimator.EstimatorSpec`.

    Raises:
      ValueError: `host_call` is no such pair; and as `EstimatorSpec` does.
    """
    spec = super().__new__(cls, *args, **kwargs)
    if host_call is None:
      return spec
    if not isinstance(host_call, (list, tuple)) or len(host_call) != 2:
      raise ValueError(
        "host_call must be a pair of a function and its tensors, but got "
        f"{host_call!r}"
      )
    function, tensors = host_call
    with tf.control_dependencies([spec.train_op] if spec.train_op else []):
      copied = tf.nest.map_structure(tf.identity, tensors)
    # Outside: to open a writer of the function must not take a step.
    is_dict = isinstance(copied, dict)
    ops = function(**copied) if is_dict else function(*copied)
    return spec._replace(
      training_hooks=(*spec.training_hooks, _HostCallHook(ops))
    )


class _HostCallHook(tf.train.SessionRunHook):
  """A hook that runs ops in each step."""

  def __init__(self, ops: Any) -> None:
    self._ops = ops

  def begin(self) -> None:
    """Finds the initializers of the summary writers."""
    summary: Any = contrib_modules.get_module("summary")
    self._init = summary.summary_writer_initializer_op()

  def after_create_session(self, session: Any, coord: Any) -> None:
    """Opens the summary writers."""
    del coord
    session.run(self._init)

  def before_run(self, run_context: Any) -> Any:
    """Asks for the ops."""
    del run_context
    return tf.train.SessionRunArgs(self._ops)


class NPUEstimator(_Estimator):
  """A `tf.estimator.Estimator` with the parameters of Ascend's."""

  def __init__(
    self,
    model_fn: Any = None,
    model_dir: str | None = None,
    config: Any = None,
    params: Any = None,
    job_start_file: str = "",
    warm_start_from: Any = None,
  ) -> None:
    """Creates an Estimator; `job_start_file` has no effect."""
    del job_start_file
    params = params or {}
    super().__init__(model_fn, model_dir, config, params, warm_start_from)


def model_to_npu_estimator(
  keras_model: Any = None,
  keras_model_path: str | None = None,
  custom_objects: Any = None,
  model_dir: str | None = None,
  checkpoint_format: str = "saver",
  config: Any = None,
  job_start_file: str = "",
) -> Any:
  """Returns an Estimator of a compiled Keras model; `job_start_file` is unused.

  The other arguments are those of `tf.keras.estimator.model_to_estimator`.
  """
  del job_start_file
  return tf.keras.estimator.model_to_estimator(
    *(keras_model, keras_model_path, custom_objects, model_dir),
    config=config,
    checkpoint_format=checkpoint_format,
  )


def npu_run_config_init(run_config: Any = None) -> Any:
  """Returns the `tf.estimator.RunConfig`, or makes one."""
  return _RunConfig() if run_config is None else run_config

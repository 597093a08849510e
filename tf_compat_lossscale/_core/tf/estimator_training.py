# SPDX-License-Identifier: Apache-2.0
"""Training of an Estimator on the workers of a distribution strategy.

TensorFlow had these functions in `tensorflow.python.distribute.
estimator_training` up to 2.15. The package `tensorflow_estimator` imports that
module, so this one stands in for it. Both use the distribute coordinator, which
has no public name and which all supported releases have.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import copy
from typing import Any

# Not plain `tensorflow`: a program may import TensorFlow 1 by that name.
import tensorflow.compat.v2 as tf
from tensorflow.python.distribute import distribute_coordinator
from tensorflow.python.distribute import distribute_coordinator_context
from tensorflow.python.distribute import multi_worker_util

# The kinds of tasks in a cluster. tensorflow_estimator uses these names.
CHIEF = "chief"
EVALUATOR = "evaluator"
PS = "ps"
WORKER = "worker"

_Mode = distribute_coordinator.CoordinatorMode
_log = tf.compat.v1.logging


def init_run_config(config: Any, tf_config: Mapping[str, Any]) -> None:
  """Completes a `RunConfig` that has a distribution strategy.

  Args:
    config: The RunConfig. It gets its tasks, and the mode of the coordinator:
      None to train without the coordinator.
    tf_config: The environment variable TF_CONFIG, decoded.

  Raises:
    ValueError: The RunConfig has two strategies or two clusters.
  """
  options = config._experimental_distribute
  for name in ("train_distribute", "eval_distribute"):
    strategy = getattr(options, name, None) if options else None
    if strategy:
      if getattr(config, f"_{name}"):
        raise ValueError(
          f"RunConfig has both {name} and experimental_distribute.{name}: give "
          "only one of them"
        )
      setattr(config, f"_{name}", strategy)
  cluster = tf.train.ClusterSpec(tf_config.get("cluster", {}))
  # The coordinator tells each worker its task. So this process has none yet.
  config._init_distributed_setting_from_environment_var({})
  remote = getattr(options, "remote_cluster", None) if options else None
  if config._train_distribute and remote:
    if cluster:
      raise ValueError(
        'TF_CONFIG has a "cluster" and RunConfig has experimental_distribute.'
        "remote_cluster: give only one of them"
      )
    config._cluster_spec = remote
    config._distribute_coordinator_mode = _Mode.STANDALONE_CLIENT
  elif cluster and config._train_distribute and "master" not in cluster.jobs:
    config._cluster_spec = cluster
    config._distribute_coordinator_mode = _Mode.INDEPENDENT_WORKER
  else:
    config._distribute_coordinator_mode = None
    config._init_distributed_setting_from_environment_var(tf_config)
    config._maybe_overwrite_session_config_for_distributed_training()
  _log.info(
    "RunConfig's mode of the distribute coordinator: %s",
    config._distribute_coordinator_mode,
  )


def should_run_distribute_coordinator(config: Any) -> bool:
  """Returns whether `train_and_evaluate` must use the coordinator."""
  mode = getattr(config, "_distribute_coordinator_mode", None)
  if mode is None:
    return False
  if mode not in (_Mode.STANDALONE_CLIENT, _Mode.INDEPENDENT_WORKER):
    _log.warning("Ignored an unknown mode of the coordinator: %r", mode)
    return False
  if not config.cluster_spec:
    _log.warning("Training locally: the mode %r needs a cluster", mode)
    return False
  return True


def train_and_evaluate(
  estimator: Any, train_spec: Any, eval_spec: Any, executor_cls: Any
) -> None:
  """Trains and evaluates on every worker that the coordinator starts.

  Args:
    estimator: The Estimator.
    train_spec: Its TrainSpec.
    eval_spec: Its EvalSpec.
    executor_cls: The class of tensorflow_estimator that evaluates repeatedly.

  Raises:
    ValueError: The RunConfig has no mode of the coordinator.
  """
  config = estimator.config
  mode = config._distribute_coordinator_mode
  if not mode:
    raise ValueError("RunConfig has no mode of the distribute coordinator")

  def train(strategy: Any) -> None:
    local, context = _copy_for_worker(estimator, "train", strategy)
    # A standalone client runs all workers in threads of one process. A hook's
    # tensors belong to the graph of one thread, so only the chief has hooks.
    has_hooks = mode == _Mode.INDEPENDENT_WORKER or context.is_chief
    hooks = list(train_spec.hooks) if has_hooks else []
    _forget_mode(local)
    local.train(
      train_spec.input_fn, hooks=hooks, max_steps=train_spec.max_steps
    )

  def evaluate(strategy: Any) -> None:
    local, _ = _copy_for_worker(estimator, "eval", strategy)
    _forget_mode(local)
    executor = executor_cls(local, train_spec, eval_spec)
    executor._start_continuous_evaluation()

  is_client = mode == _Mode.STANDALONE_CLIENT
  distribute_coordinator.run_distribute_coordinator(
    train,
    config.train_distribute,
    evaluate,
    config.eval_distribute,
    mode=mode,
    # An independent worker reads its cluster from TF_CONFIG.
    cluster_spec=config.cluster_spec if is_client else None,
    session_config=config.session_config,
  )


def estimator_train(
  estimator: Any,
  train_distributed_fn: Callable[[Any, Any, Sequence[Any]], Any],
  hooks: Sequence[Any],
) -> Any:
  """Runs `Estimator.train` on every worker of a remote cluster.

  Args:
    estimator: The Estimator.
    train_distributed_fn: A function of an Estimator, a strategy and hooks.
    hooks: The chief's hooks.

  Returns:
    What the coordinator returns.

  Raises:
    ValueError: The RunConfig is one that only `train_and_evaluate` can train.
  """
  strategy = estimator._config._train_distribute
  _check_client(estimator, strategy, "Estimator.train")

  def work(strategy: Any) -> Any:
    local, context = _copy_for_worker(estimator, "train", strategy)
    train_distributed_fn(local, strategy, hooks if context.is_chief else [])
    return local

  return _run_client(estimator, work, strategy)


def estimator_evaluate(
  estimator: Any,
  evaluate_distributed_fn: Callable[[Any, Any, Sequence[Any]], Any],
  hooks: Sequence[Any],
) -> Any:
  """Runs `Estimator.evaluate` on every worker of a remote cluster.

  Args:
    estimator: The Estimator.
    evaluate_distributed_fn: A function of an Estimator, a strategy and hooks.
    hooks: The chief's hooks.

  Returns:
    What the coordinator returns.

  Raises:
    ValueError: As for `estimator_train`.
  """
  strategy = estimator._config._eval_distribute
  _check_client(estimator, strategy, "Estimator.evaluate")

  def work(strategy: Any) -> Any:
    local, context = _copy_for_worker(estimator, "eval", strategy)
    given = hooks if context.is_chief else []
    return evaluate_distributed_fn(local, strategy, given)

  return _run_client(estimator, work, strategy)


def _check_client(estimator: Any, strategy: Any, method: str) -> None:
  """Checks that a method can run on a remote cluster.

  Raises:
    ValueError: The method cannot.
  """
  config = estimator._config
  cluster = multi_worker_util.normalize_cluster_spec(config.cluster_spec)
  mode = config._distribute_coordinator_mode
  if EVALUATOR in cluster.jobs:
    raise ValueError(
      f"{method} does not support a cluster with the job 'evaluator': use "
      "train_and_evaluate, or leave the job out"
    )
  if mode != _Mode.STANDALONE_CLIENT:
    raise ValueError(
      f"{method} supports the coordinator's mode "
      f"{_Mode.STANDALONE_CLIENT!r} alone, not {mode!r}: use "
      "train_and_evaluate"
    )
  if strategy.extended.experimental_between_graph:
    raise ValueError(
      f"{method} does not support {type(strategy).__name__}, which has a graph "
      f"for each worker, in the coordinator's mode {mode!r}: use "
      "train_and_evaluate"
    )


def _run_client(
  estimator: Any, work: Callable[[Any], Any], strategy: Any
) -> Any:
  """Runs a function on every worker of the RunConfig's remote cluster."""
  config = estimator._config
  return distribute_coordinator.run_distribute_coordinator(
    work,
    strategy,
    mode=config._distribute_coordinator_mode,
    cluster_spec=multi_worker_util.normalize_cluster_spec(config.cluster_spec),
    session_config=config.session_config,
  )


def _copy_for_worker(
  estimator: Any, kind: str, strategy: Any
) -> tuple[Any, Any]:
  """Returns a copy of an Estimator for the current worker, and the worker.

  Args:
    estimator: The Estimator.
    kind: "train" or "eval".
    strategy: The worker's strategy for that.
  """
  local = copy.deepcopy(estimator)
  context = distribute_coordinator_context.get_current_worker_context()
  setattr(local._config, f"_{kind}_distribute", strategy)
  _set_task(local._config, context)
  setattr(local, f"_{kind}_distribution", strategy)
  _log.info("RunConfig of this worker: %s", vars(local._config))
  return local, context


def _forget_mode(estimator: Any) -> None:
  """Keeps an Estimator's methods from calling the coordinator once more."""
  estimator._config._distribute_coordinator_mode = None


def _set_task(config: Any, context: Any) -> None:
  """Sets a RunConfig's task to that of a worker of the coordinator."""
  config._service = None
  config._cluster_spec = context.cluster_spec
  config._task_type = context.task_type
  config._task_id = context.task_id
  config._evaluation_master = config._master = context.master_target
  config._is_chief = context.is_chief
  config._num_ps_replicas = 0
  if not context.cluster_spec:  # Local training.
    config._global_id_in_cluster = 0
    config._num_worker_replicas = 1
  elif context.task_type == EVALUATOR:  # It knows nothing of the other tasks.
    config._cluster_spec = tf.train.ClusterSpec({})
    config._global_id_in_cluster = None
    config._num_worker_replicas = 0
  else:
    tasks = context.cluster_spec.as_dict()
    config._num_ps_replicas = len(tasks.get(PS, []))
    config._num_worker_replicas = sum(
      len(tasks.get(job, [])) for job in (CHIEF, WORKER)
    )
    config._global_id_in_cluster = _count_tasks_before(context)


def _count_tasks_before(context: Any) -> int:
  """Returns the position of a worker's task among all tasks of the cluster.

  RunConfig.global_id_in_cluster documents the order: the chief, then the other
  jobs by their names, then the parameter servers.
  """
  if not context.task_type:
    return 0
  cluster = context.cluster_spec
  jobs = sorted(cluster.jobs, key=lambda job: (job != CHIEF, job == PS, job))
  before = jobs[: jobs.index(context.task_type)]
  return context.task_id + sum(cluster.num_tasks(job) for job in before)

# SPDX-License-Identifier: Apache-2.0
"""Training of an Estimator on the workers of a distribution strategy.

TensorFlow had these functions in `tensorflow.python.distribute.
estimator_training` up to 2.15. The package `tensorflow_estimator` imports that
module, so this one stands in for it. Both use the distribute coordinator, which
has no public name and which all supported releases have.

Each worker runs the program. A single program that trains on the servers of a
remote cluster is not supported.
"""

from __future__ import annotations

from collections.abc import Mapping
import copy
from typing import Any
from typing import NoReturn

# Not plain `tensorflow`: a program may import TensorFlow 1 by that name.
import tensorflow.compat.v2 as tf
from tensorflow.python.distribute import distribute_coordinator
from tensorflow.python.distribute import distribute_coordinator_context

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
    ValueError: The RunConfig has two strategies or a remote cluster.
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
  if config._train_distribute and getattr(options, "remote_cluster", None):
    raise ValueError(
      "RunConfig has experimental_distribute.remote_cluster, which needs "
      "TensorFlow 2.15 or older: start the program on each worker of the "
      "cluster instead, with the cluster in TF_CONFIG"
    )
  if cluster and config._train_distribute and "master" not in cluster.jobs:
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
  return mode is not None and bool(config.cluster_spec)


def train_and_evaluate(
  estimator: Any, train_spec: Any, eval_spec: Any, executor_cls: Any
) -> None:
  """Trains and evaluates as the task that the coordinator gives this process.

  `executor_cls` is the class of tensorflow_estimator that evaluates repeatedly.
  """
  config = estimator.config

  def train(strategy: Any) -> None:
    local = _copy_for_worker(estimator, "train", strategy)
    local.train(
      train_spec.input_fn,
      hooks=list(train_spec.hooks),
      max_steps=train_spec.max_steps,
    )

  def evaluate(strategy: Any) -> None:
    local = _copy_for_worker(estimator, "eval", strategy)
    executor = executor_cls(local, train_spec, eval_spec)
    executor._start_continuous_evaluation()

  # A worker reads its cluster from TF_CONFIG.
  distribute_coordinator.run_distribute_coordinator(
    train,
    config.train_distribute,
    evaluate,
    config.eval_distribute,
    mode=_Mode.INDEPENDENT_WORKER,
    cluster_spec=None,
    session_config=config.session_config,
  )


def estimator_train(*args: Any) -> NoReturn:
  """Refuses `Estimator.train` and `Estimator.evaluate` in a cluster.

  Raises:
    ValueError: Always.
  """
  raise ValueError(
    "Estimator.train and Estimator.evaluate do not work on the workers of a "
    "cluster: use train_and_evaluate"
  )


estimator_evaluate = estimator_train


def _copy_for_worker(estimator: Any, kind: str, strategy: Any) -> Any:
  """Returns an Estimator for the current worker to "train" or "eval" by."""
  local = copy.deepcopy(estimator)
  context = distribute_coordinator_context.get_current_worker_context()
  setattr(local._config, f"_{kind}_distribute", strategy)
  _set_task(local._config, context)
  setattr(local, f"_{kind}_distribution", strategy)
  _log.info("RunConfig of this worker: %s", vars(local._config))
  # The methods of the copy must not call the coordinator once more.
  local._config._distribute_coordinator_mode = None
  return local


def _set_task(config: Any, context: Any) -> None:
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

# SPDX-License-Identifier: Apache-2.0
"""`tf.contrib.learn.RunConfig`: an older `tf.estimator.RunConfig`."""

from __future__ import annotations

import json
import os
from typing import Any

import tensorflow.compat.v1 as tf
from tensorflow.compat.v1 import estimator

_Base: Any = estimator.RunConfig
# What `uid` leaves out by default: a program may change these.
_LEFT_OUT = (
  "tf_random_seed",
  "save_summary_steps",
  "save_checkpoints_steps",
  "save_checkpoints_secs",
  "session_config",
  "keep_checkpoint_max",
  "keep_checkpoint_every_n_hours",
  "log_step_count_steps",
)


def _read_environment() -> dict[str, Any]:
  """Returns what the environment variable TF_CONFIG says."""
  found: dict[str, Any] = json.loads(os.environ.get("TF_CONFIG") or "{}")
  return found


def _find_master(jobs: Any, task: str | None, index: int) -> str:
  """Returns the target of a task's sessions; "" for this process.

  Args:
    jobs: The addresses of the cluster, by job.
    task: The job of the task; None if TF_CONFIG names none.
    index: The index of the task.
  """
  if task is None or sum(map(len, jobs.values())) <= 1:
    return ""
  addresses = jobs.get(task, ())
  if not 0 <= index < len(addresses):
    raise ValueError(
      f"TF_CONFIG names task {index} of {task!r}, which its cluster lacks: "
      f"{jobs}"
    )
  return f"grpc://{addresses[index]}"


class RunConfig(_Base):
  """A configuration of runs, with the parameters of TensorFlow 1.15.

  As there, `tf.estimator` gives sessions `session_config` alone. `tf_config`,
  which is made of the first parameters, is for the program.
  """

  def __init__(
    self,
    master: str | None = None,
    num_cores: int = 0,
    log_device_placement: bool = False,
    gpu_memory_fraction: float = 1,
    tf_random_seed: int | None = None,
    save_summary_steps: int | None = 100,
    save_checkpoints_secs: int | None = 0,
    save_checkpoints_steps: int | None = None,
    keep_checkpoint_max: int | None = 5,
    keep_checkpoint_every_n_hours: int = 10000,
    log_step_count_steps: int | None = 100,
    protocol: str | None = None,
    evaluation_master: str = "",
    model_dir: str | None = None,
    session_config: Any = None,
    session_creation_timeout_secs: int = 7200,
  ):
    """Creates a configuration.

    Args:
      master: The session's target; by default what TF_CONFIG says.
      num_cores: The number of threads in `tf_config`.
      log_device_placement: An option of `tf_config`.
      gpu_memory_fraction: An option of `tf_config`.
      tf_random_seed: The seed of initializers.
      save_summary_steps: How often summaries are saved.
      save_checkpoints_secs: How often checkpoints are saved, in seconds; 0 for
        600, unless `save_checkpoints_steps` is given.
      save_checkpoints_steps: How often checkpoints are saved, in steps.
      keep_checkpoint_max: How many checkpoints are kept.
      keep_checkpoint_every_n_hours: How often one is kept for ever.
      log_step_count_steps: How often the speed is logged.
      protocol: The protocol of servers.
      evaluation_master: The session's target for evaluation.
      model_dir: The folder of the model; by default what TF_CONFIG says.
      session_config: The ConfigProto of sessions.
      session_creation_timeout_secs: How long workers wait for a session.

    Raises:
      ValueError: `model_dir` is not the one of TF_CONFIG, or TF_CONFIG is
        malformed or names a task that its cluster lacks.
    """
    # The constructor of the base class reads TF_CONFIG by other rules.
    self._read_cluster(master, evaluation_master)
    if save_checkpoints_secs == 0:
      save_checkpoints_secs = 600 if save_checkpoints_steps is None else None
    self._tf_random_seed = tf_random_seed
    self._save_summary_steps = save_summary_steps
    self._save_checkpoints_secs = save_checkpoints_secs
    self._save_checkpoints_steps = save_checkpoints_steps
    self._keep_checkpoint_max = keep_checkpoint_max
    self._keep_checkpoint_every_n_hours = keep_checkpoint_every_n_hours
    self._checkpoint_save_graph_def = True
    self._log_step_count_steps = log_step_count_steps
    self._protocol, self._session_config = protocol, session_config
    self._session_creation_timeout_secs = session_creation_timeout_secs
    self._train_distribute = self._eval_distribute = None
    self._device_fn = self._experimental_max_worker_delay_secs = None
    there = _read_environment().get("model_dir")
    if there is not None and model_dir not in (None, there):
      raise ValueError(
        f"RunConfig got model_dir={model_dir!r}, but TF_CONFIG has {there!r}: "
        "they must be the same"
      )
    self._model_dir = model_dir or there
    self._tf_config = tf.ConfigProto(
      log_device_placement=log_device_placement,
      inter_op_parallelism_threads=num_cores,
      intra_op_parallelism_threads=num_cores,
      gpu_options=tf.GPUOptions(
        per_process_gpu_memory_fraction=gpu_memory_fraction
      ),
    )

  def _read_cluster(self, master: str | None, evaluation_master: str) -> None:
    """Sets what TF_CONFIG says of the cluster and of this task."""
    found = _read_environment()
    cluster = tf.train.ClusterSpec(found.get("cluster", {}))
    jobs = cluster.as_dict()
    task, self._task_id = found.get("task", {}).get("type"), self.get_task_id()
    self._cluster_spec, self._task_type = cluster, task
    self._environment = found.get("environment", "local")
    self._master = _find_master(jobs, task, self._task_id)
    if master is not None:
      self._master = master
    self._evaluation_master = evaluation_master or ""
    self._num_ps_replicas = len(jobs.get("ps", ()))
    workers = (jobs.get(name, ()) for name in ("worker", "master"))
    self._num_worker_replicas = sum(map(len, workers))
    chief = "master" if self._environment == "cloud" else "worker"
    self._is_chief = self._task_id == 0 and task in (None, chief)

  @property
  def environment(self) -> str:
    """Where the program runs: "local", "cloud" or "google"."""
    return str(self._environment)

  @property
  def tf_config(self) -> Any:
    """The ConfigProto of the first parameters."""
    return self._tf_config

  @staticmethod
  def get_task_id() -> int:
    """Returns the index of this task that TF_CONFIG says, or 0."""
    return int(_read_environment().get("task", {}).get("index") or 0)

  def uid(self, whitelist: Any = None) -> str:
    """Returns a text of all values.

    Args:
      whitelist: The names of the properties to leave out; by default those
        that a program may change.
    """
    state = dict(vars(self))
    for name in _LEFT_OUT if whitelist is None else whitelist:
      state.pop(f"_{name}", None)
    if "_cluster_spec" in state:
      state["_cluster_spec"] = sorted(state["_cluster_spec"].as_dict().items())
    return ", ".join(f"{key}={state[key]!r}" for key in sorted(state))

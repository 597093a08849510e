# SPDX-License-Identifier: Apache-2.0
"""A world of one process, whose optimizer delegates as Horovod's does."""

import tensorflow.compat.v1 as tf

from horovod.tensorflow.compression import Compression  # noqa: F401

Average, Sum, Adasum = "Average", "Sum", "Adasum"


def init(*args, **kwargs):
  pass


def shutdown():
  pass


def size():
  return 1


def local_size():
  return 1


def rank():
  return 0


def local_rank():
  return 0


def is_initialized():
  return True


def mpi_threads_supported():
  return False


def mpi_enabled():
  return False


def allreduce(tensor, *args, **kwargs):
  return tf.identity(tensor)


def allgather(tensor, *args, **kwargs):
  return tf.identity(tensor)


def broadcast(tensor, *args, **kwargs):
  return tf.identity(tensor)


def broadcast_variables(variables, root_rank):
  return tf.no_op()


def broadcast_global_variables(root_rank):
  return tf.no_op()


class BroadcastGlobalVariablesHook(tf.train.SessionRunHook):
  def __init__(self, root_rank, device=""):
    super().__init__()


class _DistributedOptimizer(tf.train.Optimizer):
  def __init__(self, optimizer, name, use_locking):
    super().__init__(name=name, use_locking=use_locking)
    self._optimizer = optimizer

  def compute_gradients(self, *args, **kwargs):
    return self._optimizer.compute_gradients(*args, **kwargs)

  def apply_gradients(self, *args, **kwargs):
    return self._optimizer.apply_gradients(*args, **kwargs)

  def get_slot(self, *args, **kwargs):
    return self._optimizer.get_slot(*args, **kwargs)

  def get_slot_names(self, *args, **kwargs):
    return self._optimizer.get_slot_names(*args, **kwargs)

  def variables(self, *args, **kwargs):
    return self._optimizer.variables(*args, **kwargs)


def DistributedOptimizer(optimizer, name=None, use_locking=False, **kwargs):
  name = name or f"Distributed{type(optimizer).__name__}"
  return _DistributedOptimizer(optimizer, name, use_locking)

# SPDX-License-Identifier: Apache-2.0
"""`tf.contrib.training`'s batches of examples that are alike, by queues."""

from __future__ import annotations

from collections.abc import Sequence
import itertools
from typing import Any

import tensorflow.compat.v1 as tf

# What ends a queue runner's thread without an error.
_ENDS = (tf.errors.OutOfRangeError, tf.errors.CancelledError)


def bucket(
  tensors: Any,
  which_bucket: Any,
  batch_size: Any,
  num_buckets: int,
  num_threads: int = 1,
  capacity: int = 32,
  bucket_capacities: Sequence[int] | None = None,
  shapes: Any = None,
  dynamic_pad: bool = False,
  allow_smaller_final_batch: bool = False,
  keep_input: Any = True,
  shared_name: str | None = None,
  name: str | None = None,
) -> tuple[Any, Any]:
  """Collects examples in buckets, and returns batches of one bucket each.

  Queue runners fill the buckets: `tf.train.start_queue_runners`, or a
  `MonitoredSession`, starts them.

  Args:
    tensors: One example: a list or dict of dense tensors.
    which_bucket: The example's bucket, int32 [], from 0 to `num_buckets - 1`.
    batch_size: The number of examples in a batch, or a list with a number for
      each bucket.
    num_buckets: The number of buckets, at least 1.
    num_threads: The number of threads that add examples.
    capacity: The number of batches that wait, and of examples in a bucket.
    bucket_capacities: The number of examples in each bucket.
    shapes: A list with the shape of each tensor; those of the tensors if None.
      The tensors of a dict are in the order of their sorted keys.
    dynamic_pad: Whether the examples of a batch are padded with zeros to one
      shape. Otherwise the shapes must be known.
    allow_smaller_final_batch: Whether a bucket's last batch may be smaller.
    keep_input: Whether to take the example, bool [].
    shared_name: The name under which sessions share the queues.
    name: The name scope.

  Returns:
    The bucket, int32 [], and the batch: `tensors` with a first dimension more.

  Raises:
    ValueError: An argument is not as described.
  """
  if not tensors:
    raise ValueError(f"bucket got tensors={tensors!r}: give at least one")
  sizes = _list_sizes("batch_size", batch_size, num_buckets)
  capacities = _list_sizes(
    *("bucket_capacities", bucket_capacities or capacity, num_buckets)
  )
  with tf.name_scope(name, "bucket", tf.nest.flatten([tensors, which_bucket])):
    flat = [tf.convert_to_tensor(x) for x in tf.nest.flatten(tensors)]
    which_bucket = tf.convert_to_tensor(which_bucket, tf.int32)
    dtypes = [tensor.dtype for tensor in flat]
    given = flat if shapes is None else list(shapes)
    known = [tf.TensorShape(getattr(x, "shape", x)) for x in given]
    if not dynamic_pad and not all(s.is_fully_defined() for s in known):
      raise ValueError(
        f"bucket got tensors of the shapes {known}: give shapes= that are "
        "known, or dynamic_pad=True"
      )
    kind = tf.PaddingFIFOQueue if dynamic_pad else tf.FIFOQueue
    queues = [
      kind(
        *(capacities[i], dtypes, known),
        shared_name=f"{shared_name}_{i}" if shared_name else None,
        name=f"bucket_queue_{i}",
      )
      for i in range(num_buckets)
    ]
    _fill(queues, flat, which_bucket, keep_input, num_threads)
    batches = tf.FIFOQueue(
      *(capacity, [tf.int32, *dtypes]),
      shared_name=shared_name,
      name="top_queue",
    )
    take = "dequeue_up_to" if allow_smaller_final_batch else "dequeue_many"
    enqueues = [
      batches.enqueue(
        [tf.constant(i), *tf.nest.flatten(getattr(queue, take)(size))]
      )
      for i, (queue, size) in enumerate(zip(queues, sizes))
    ]
    tf.train.add_queue_runner(
      tf.train.QueueRunner(
        batches, enqueues, queue_closed_exception_types=_ENDS
      )
    )
    tf.summary.scalar(
      f"bucket/{batches.name}/fraction_of_{capacity}_full",
      tf.cast(batches.size(), tf.float32) / capacity,
    )
    index, *batch = batches.dequeue(name=name)
    index.set_shape([])
    is_one = len(set(map(str, sizes))) == 1 and not allow_smaller_final_batch
    size = tf.get_static_value(sizes[0]) if is_one else None
    for tensor, shape in zip(batch, known):
      tensor.set_shape(tf.TensorShape([size]).concatenate(shape))
    return index, tf.nest.pack_sequence_as(tensors, batch)


def bucket_by_sequence_length(
  input_length: Any,
  tensors: Any,
  batch_size: Any,
  bucket_boundaries: Sequence[int],
  num_threads: int = 1,
  capacity: int = 32,
  bucket_capacities: Sequence[int] | None = None,
  shapes: Any = None,
  dynamic_pad: bool = False,
  allow_smaller_final_batch: bool = False,
  keep_input: Any = True,
  shared_name: str | None = None,
  name: str | None = None,
) -> tuple[Any, Any]:
  """Returns batches of examples whose lengths are alike.

  The arguments that are not listed here are those of `bucket`.

  Args:
    input_length: The example's length, int32 [].
    tensors: One example: a list or dict of dense tensors.
    batch_size: The number of examples in a batch, or a list with a number for
      each bucket: one more than boundaries.
    bucket_boundaries: The lengths, strictly increasing, at which a bucket ends
      and the next begins.

  Returns:
    The lengths, int32 [batch], and the batch: `tensors` with a first dimension
    more.

  Raises:
    TypeError: `bucket_boundaries` is no list or tuple of integers.
    ValueError: They do not increase, or `bucket` raises the error.
  """
  if not isinstance(bucket_boundaries, list | tuple) or not all(
    isinstance(boundary, int) for boundary in bucket_boundaries
  ):
    raise TypeError(
      "bucket_by_sequence_length got "
      f"bucket_boundaries={bucket_boundaries!r}: give a list of integers"
    )
  pairs = itertools.pairwise(bucket_boundaries)
  if not bucket_boundaries or any(low >= high for low, high in pairs):
    raise ValueError(
      "bucket_by_sequence_length got "
      f"bucket_boundaries={bucket_boundaries!r}: give integers that increase"
    )
  flat = tf.nest.flatten(tensors)
  with tf.name_scope(name, "bucket_by_sequence_length", [input_length, *flat]):
    length = tf.convert_to_tensor(input_length, tf.int32)
    passed = tf.cast(length >= tf.constant(bucket_boundaries), tf.int32)
    if shapes is not None:
      shapes = [tf.TensorShape([]), *shapes]
    _, (lengths, *batch) = bucket(
      [length, *flat],
      tf.reduce_sum(passed),
      batch_size,
      len(bucket_boundaries) + 1,
      num_threads=num_threads,
      capacity=capacity,
      bucket_capacities=bucket_capacities,
      shapes=shapes,
      dynamic_pad=dynamic_pad,
      allow_smaller_final_batch=allow_smaller_final_batch,
      keep_input=keep_input,
      shared_name=shared_name,
    )
    return lengths, tf.nest.pack_sequence_as(tensors, batch)


def _list_sizes(name: str, value: Any, count: int) -> list[Any]:
  """Returns the value of each bucket."""
  if count < 1:
    raise ValueError(f"bucket got num_buckets={count}: give at least 1")
  if not isinstance(value, list | tuple):
    return [value] * count
  if len(value) != count:
    raise ValueError(
      f"bucket got {name}={value!r} for {count} buckets: give {count} numbers"
    )
  return list(value)


def _fill(
  queues: list[Any], flat: list[Any], which: Any, keep: Any, num_threads: int
) -> None:
  """Adds the queue runner that puts each example into its bucket."""

  def enqueue() -> Any:
    return tf.group(
      *(
        tf.cond(tf.equal(which, i), lambda q=q: q.enqueue(flat), tf.no_op)
        for i, q in enumerate(queues)
      )
    )

  if keep is True:
    step = enqueue()
  else:
    step = tf.cond(tf.convert_to_tensor(keep), enqueue, tf.no_op)
  runner = tf.train.QueueRunner(
    queues[0],
    [step] * num_threads,
    tf.group(*(queue.close() for queue in queues)),
    tf.group(*(queue.close(cancel_pending_enqueues=True) for queue in queues)),
    queue_closed_exception_types=_ENDS,
  )
  tf.train.add_queue_runner(runner)

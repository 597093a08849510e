# SPDX-License-Identifier: Apache-2.0
"""The helpers of `tf.contrib.seq2seq`, which feed decoders."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow.compat.v1 as tf


def swap_batch_and_time(tensor: tf.Tensor) -> tf.Tensor:
  """Returns a tensor [a, b, ...] as [b, a, ...], and others as they are."""
  shape = tensor.shape
  if shape.rank is None:
    others = tf.range(2, tf.rank(tensor))
    return tf.transpose(tensor, tf.concat([[1, 0], others], axis=0))
  if shape.rank < 2:
    return tensor
  return tf.transpose(tensor, [1, 0, *range(2, shape.rank)])


class Helper:
  """A base class for what feeds a decoder: samples and next inputs.

  Outputs are logits [batch, classes], inputs nests of tensors [batch, ...], and
  "finished" are bools [batch].
  """

  _batch: Any = None
  _shape: Any = tf.TensorShape([])
  _dtype: Any = tf.int32

  @property
  def batch_size(self) -> Any:
    """The batch size, an int32 of shape []."""
    return self._batch

  @property
  def sample_ids_shape(self) -> Any:
    """The shape of a sample, without the batch."""
    return self._shape

  @property
  def sample_ids_dtype(self) -> Any:
    """The dtype of samples."""
    return self._dtype

  def initialize(self, name: str | None = None) -> tuple[Any, Any]:
    """Returns which sequences are finished, and the first inputs."""
    raise NotImplementedError

  def sample(
    self, time: Any, outputs: Any, state: Any, name: str | None = None
  ) -> Any:
    """Returns the samples of a step."""
    raise NotImplementedError

  def next_inputs(
    self,
    time: Any,
    outputs: Any,
    state: Any,
    sample_ids: Any,
    name: str | None = None,
  ) -> tuple[Any, Any, Any]:
    """Returns which sequences are finished, the next inputs, and the state."""
    raise NotImplementedError


class CustomHelper(Helper):
  """A helper made of three functions.

  Args:
    initialize_fn: Returns which sequences are finished, bools [batch], and the
      first inputs [batch, ...].
    sample_fn: A function of time, outputs and state that returns samples
      [batch, ...].
    next_inputs_fn: A function of time, outputs, state and sample_ids that
      returns finished, inputs and state.
    sample_ids_shape: The shape of a sample, without the batch; [] by default.
    sample_ids_dtype: The dtype of samples; int32 by default.
  """

  def __init__(
    self,
    initialize_fn: Any,
    sample_fn: Any,
    next_inputs_fn: Any,
    sample_ids_shape: Any = None,
    sample_ids_dtype: Any = None,
  ):
    self._functions = initialize_fn, sample_fn, next_inputs_fn
    self._shape = tf.TensorShape(sample_ids_shape or [])
    self._dtype = sample_ids_dtype or tf.int32

  def initialize(self, name: str | None = None) -> tuple[Any, Any]:
    finished, inputs = self._functions[0]()
    if self._batch is None:
      self._batch = tf.size(finished)
    return finished, inputs

  def sample(
    self, time: Any, outputs: Any, state: Any, name: str | None = None
  ) -> Any:
    return self._functions[1](time=time, outputs=outputs, state=state)

  def next_inputs(
    self,
    time: Any,
    outputs: Any,
    state: Any,
    sample_ids: Any,
    name: str | None = None,
  ) -> tuple[Any, Any, Any]:
    return self._functions[2](
      time=time, outputs=outputs, state=state, sample_ids=sample_ids
    )


class TrainingHelper(Helper):
  """A helper whose inputs are given; it samples the best classes.

  Args:
    inputs: A nest of tensors [batch, time, ...].
    sequence_length: The lengths of the sequences, int32 [batch].
    time_major: Whether inputs are [time, batch, ...].
    name: The name scope.
  """

  def __init__(
    self,
    inputs: Any,
    sequence_length: Any,
    time_major: bool = False,
    name: str | None = None,
  ):
    with tf.name_scope(name, "TrainingHelper", [inputs, sequence_length]):
      inputs = tf.nest.map_structure(tf.convert_to_tensor, inputs)
      if not time_major:
        inputs = tf.nest.map_structure(swap_batch_and_time, inputs)
      self._inputs = inputs
      self._lengths = tf.convert_to_tensor(sequence_length)
      self._batch = tf.size(self._lengths)

  @property
  def inputs(self) -> Any:
    """The inputs, [time, batch, ...]."""
    return self._inputs

  @property
  def sequence_length(self) -> Any:
    """The lengths of the sequences, int32 [batch]."""
    return self._lengths

  def _read(self, time: Any) -> Any:
    """Returns the inputs of a step; zeros after the last."""

    def read(sequence: Any) -> Any:
      last = tf.shape(sequence)[0] - 1
      value = sequence[tf.minimum(time, last)]
      return tf.cond(
        tf.greater(time, last), lambda: tf.zeros_like(value), lambda: value
      )

    return tf.nest.map_structure(read, self._inputs)

  def initialize(self, name: str | None = None) -> tuple[Any, Any]:
    with tf.name_scope(name, "TrainingHelperInitialize"):
      return tf.equal(0, self._lengths), self._read(0)

  def sample(  # type: ignore[override]
    self, time: Any, outputs: Any, name: str | None = None, **unused_kwargs: Any
  ) -> Any:
    return tf.argmax(outputs, axis=-1, output_type=tf.int32)

  def next_inputs(  # type: ignore[override]
    self,
    time: Any,
    outputs: Any,
    state: Any,
    name: str | None = None,
    **unused_kwargs: Any,
  ) -> tuple[Any, Any, Any]:
    with tf.name_scope(name, "TrainingHelperNextInputs"):
      time += 1
      return time >= self._lengths, self._read(time), state


class ScheduledEmbeddingTrainingHelper(TrainingHelper):
  """A helper that replaces some of the given inputs by samples.

  Args:
    inputs: Embeddings, floats [batch, time, depth].
    sequence_length: The lengths of the sequences, int32 [batch].
    embedding: A matrix [classes, depth], or a function of ids, int32 [batch].
    sampling_probability: The probability of a sample, a float32 of shape [] or
      [batch].
    time_major: Whether inputs are [time, batch, depth].
    seed: The seed of the samples.
    scheduling_seed: The seed of the choice between input and sample.
    name: The name scope.
  """

  def __init__(
    self,
    inputs: Any,
    sequence_length: Any,
    embedding: Any,
    sampling_probability: Any,
    time_major: bool = False,
    seed: int | None = None,
    scheduling_seed: int | None = None,
    name: str | None = None,
  ):
    super().__init__(inputs, sequence_length, time_major, name)
    self._embed = make_embedding_function(embedding)
    self._probability = tf.convert_to_tensor(sampling_probability)
    self._seeds = seed, scheduling_seed

  def sample(  # type: ignore[override]
    self, time: Any, outputs: Any, state: Any, name: str | None = None
  ) -> Any:
    """Returns samples, and -1 where the given inputs are used."""
    chosen = tf.random_uniform([self._batch], seed=self._seeds[1])
    samples = tf.random.categorical(
      outputs, 1, seed=self._seeds[0], dtype=tf.int32
    )[:, 0]
    return tf.where(
      chosen < self._probability, samples, tf.fill([self._batch], -1)
    )

  def next_inputs(  # type: ignore[override]
    self,
    time: Any,
    outputs: Any,
    state: Any,
    sample_ids: Any,
    name: str | None = None,
  ) -> tuple[Any, Any, Any]:
    finished, inputs, state = super().next_inputs(time, outputs, state)
    embedded = self._embed(tf.maximum(sample_ids, 0))
    return finished, tf.where(sample_ids > -1, embedded, inputs), state


class GreedyEmbeddingHelper(Helper):
  """A helper whose next inputs are the embeddings of the best classes.

  Args:
    embedding: A matrix [classes, depth], or a function of ids, int32 [batch].
    start_tokens: The first ids, int32 [batch].
    end_token: The id that ends a sequence, an int32 of shape [].
  """

  def __init__(self, embedding: Any, start_tokens: Any, end_token: Any):
    self._embed = make_embedding_function(embedding)
    self._start = tf.convert_to_tensor(
      start_tokens, tf.int32, name="start_tokens"
    )
    self._end = tf.convert_to_tensor(end_token, tf.int32, name="end_token")
    if len(self._start.shape) != 1 or len(self._end.shape):
      raise ValueError(
        f"start_tokens must be a vector and end_token a scalar, but they are "
        f"{self._start} and {self._end}"
      )
    self._batch = tf.size(self._start)

  def initialize(self, name: str | None = None) -> tuple[Any, Any]:
    return tf.fill([self.batch_size], False), self._embed(self._start)

  def sample(
    self, time: Any, outputs: Any, state: Any, name: str | None = None
  ) -> Any:
    return tf.argmax(outputs, axis=-1, output_type=tf.int32)

  def next_inputs(
    self,
    time: Any,
    outputs: Any,
    state: Any,
    sample_ids: Any,
    name: str | None = None,
  ) -> tuple[Any, Any, Any]:
    finished = tf.equal(sample_ids, self._end)
    return finished, self._embed(sample_ids), state


class SampleEmbeddingHelper(GreedyEmbeddingHelper):
  """A helper whose next inputs are the embeddings of random classes.

  Args:
    embedding: A matrix [classes, depth], or a function of ids, int32 [batch].
    start_tokens: The first ids, int32 [batch].
    end_token: The id that ends a sequence, an int32 of shape [].
    softmax_temperature: A float of shape [] that divides the logits; None for
      1.
    seed: The seed of the samples.
  """

  def __init__(
    self,
    embedding: Any,
    start_tokens: Any,
    end_token: Any,
    softmax_temperature: Any = None,
    seed: int | None = None,
  ):
    super().__init__(embedding, start_tokens, end_token)
    self._temperature, self._seed = softmax_temperature, seed

  def sample(
    self, time: Any, outputs: Any, state: Any, name: str | None = None
  ) -> Any:
    if self._temperature is not None:
      outputs = outputs / self._temperature
    drawn = tf.random.categorical(outputs, 1, seed=self._seed, dtype=tf.int32)
    return drawn[:, 0]


class InferenceHelper(CustomHelper):
  """A helper made of functions, without embeddings.

  Args:
    sample_fn: A function of outputs [batch, ...] that returns samples [batch,
      ...].
    sample_shape: The shape of a sample, without the batch.
    sample_dtype: The dtype of samples.
    start_inputs: The first inputs, [batch, ...].
    end_fn: A function of samples that returns which sequences are finished,
      bools [batch].
    next_inputs_fn: A function of samples that returns the next inputs; None if
      the samples themselves are the inputs.
  """

  def __init__(
    self,
    sample_fn: Any,
    sample_shape: Any,
    sample_dtype: Any,
    start_inputs: Any,
    end_fn: Any,
    next_inputs_fn: Any = None,
  ):
    start = tf.convert_to_tensor(start_inputs, name="start_inputs")
    self._batch = tf.shape(start)[0]
    to_inputs = next_inputs_fn or (lambda sample_ids: sample_ids)
    super().__init__(
      lambda: (tf.fill([self._batch], False), start),
      lambda time, outputs, state: sample_fn(outputs),
      lambda time, outputs, state, sample_ids: (
        end_fn(sample_ids),
        to_inputs(sample_ids),
        state,
      ),
      sample_shape,
      sample_dtype,
    )


def make_embedding_function(embedding: Any) -> Callable[[Any], Any]:
  """Returns the function that embeds ids."""
  if callable(embedding):
    return embedding
  return lambda ids: tf.nn.embedding_lookup(embedding, ids)

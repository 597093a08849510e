# SPDX-License-Identifier: Apache-2.0
"""The decoders of `tf.contrib.seq2seq`, and the loop that runs them."""

from __future__ import annotations

import contextlib
from typing import Any
from typing import NamedTuple

import tensorflow.compat.v1 as tf

from tf1_contrib.helpers import swap_batch_and_time


class Decoder:
  """A base class for decoders, which `dynamic_decode` runs.

  Inputs, outputs and states are nests of tensors [batch, ...]. "Finished" are
  bools [batch].
  """

  @property
  def batch_size(self) -> Any:
    """The batch size."""
    raise NotImplementedError

  @property
  def output_size(self) -> Any:
    """The sizes or shapes of a step's outputs."""
    raise NotImplementedError

  @property
  def output_dtype(self) -> Any:
    """The dtypes of the outputs."""
    raise NotImplementedError

  @property
  def tracks_own_finished(self) -> bool:
    """Whether `step` returns all sequences that are finished."""
    return False

  def initialize(self, name: str | None = None) -> tuple[Any, Any, Any]:
    """Returns which sequences are finished, the first inputs and the state."""
    raise NotImplementedError

  def step(
    self, time: Any, inputs: Any, state: Any, name: str | None = None
  ) -> tuple[Any, Any, Any, Any]:
    """Returns outputs, state, next inputs, and which sequences are finished."""
    raise NotImplementedError

  def finalize(
    self, outputs: Any, final_state: Any, sequence_lengths: Any
  ) -> tuple[Any, Any]:
    """Returns the outputs and the state after the last step."""
    raise NotImplementedError


class BasicDecoderOutput(NamedTuple):
  """The outputs of `BasicDecoder`.

  Attributes:
    rnn_output: The outputs of the cell, or of the output layer: floats [batch,
      size], after `dynamic_decode` [batch, time, size].
    sample_id: The samples of the helper: [batch, ...], after `dynamic_decode`
      [batch, time, ...]; int32 by default.
  """

  rnn_output: Any
  sample_id: Any


class BasicDecoder(Decoder):
  """A decoder that samples by a helper.

  Args:
    cell: The cell.
    helper: The helper, whose inputs [batch, ...] the cell takes.
    initial_state: The cell's first state, a nest of tensors [batch, ...].
    output_layer: A layer of the cell's outputs [batch, size]; None for none.
  """

  def __init__(
    self, cell: Any, helper: Any, initial_state: Any, output_layer: Any = None
  ):
    self._cell, self._helper = cell, helper
    self._initial_state, self._output_layer = initial_state, output_layer

  @property
  def batch_size(self) -> Any:
    return self._helper.batch_size

  @property
  def output_size(self) -> Any:
    return BasicDecoderOutput(
      compute_output_size(self._cell, self._output_layer),
      self._helper.sample_ids_shape,
    )

  @property
  def output_dtype(self) -> Any:
    dtype = tf.nest.flatten(self._initial_state)[0].dtype
    size = compute_output_size(self._cell, self._output_layer)
    return BasicDecoderOutput(
      tf.nest.map_structure(lambda _: dtype, size),
      self._helper.sample_ids_dtype,
    )

  def initialize(self, name: str | None = None) -> tuple[Any, Any, Any]:
    return *self._helper.initialize(), self._initial_state

  def step(
    self, time: Any, inputs: Any, state: Any, name: str | None = None
  ) -> tuple[Any, Any, Any, Any]:
    with tf.name_scope(name, "BasicDecoderStep"):
      outputs, state = self._cell(inputs, state)
      if self._output_layer is not None:
        outputs = self._output_layer(outputs)
      samples = self._helper.sample(time=time, outputs=outputs, state=state)
      finished, inputs, state = self._helper.next_inputs(
        time=time, outputs=outputs, state=state, sample_ids=samples
      )
    return BasicDecoderOutput(outputs, samples), state, inputs, finished


def compute_output_size(cell: Any, layer: Any) -> Any:
  """Returns the size of a cell's output after a layer."""
  if layer is None:
    return cell.output_size
  shape = tf.TensorShape([None]).concatenate(as_shape(cell.output_size))
  return tf.TensorShape(layer.compute_output_shape(shape))[1:]


def as_shape(size: Any) -> Any:
  """Returns the shape that a size or a shape means."""
  return tf.TensorShape([size] if isinstance(size, int) else size)


def make_zeros(size: Any, batch: Any, dtype: Any) -> Any:
  """Returns zeros for a batch of a size or shape.

  Args:
    size: A size, which may be a tensor, or a shape.
    batch: The batch size.
    dtype: The dtype.
  """
  if isinstance(size, tf.TensorShape):
    size = size.as_list()
  sizes = size if isinstance(size, list | tuple) else [size]
  zeros = tf.zeros(tf.stack([batch, *sizes]), dtype)
  static = [tf.get_static_value(value) for value in (batch, *sizes)]
  zeros.set_shape(static)
  return zeros


def dynamic_decode(
  decoder: Any,
  output_time_major: bool = False,
  impute_finished: bool = False,
  maximum_iterations: Any = None,
  parallel_iterations: int = 32,
  swap_memory: bool = False,
  scope: Any = None,
  **kwargs: Any,
) -> tuple[Any, Any, Any]:
  """Runs a decoder until all sequences are finished.

  Args:
    decoder: The decoder.
    output_time_major: Whether time is the first dimension of the outputs.
    impute_finished: Whether finished sequences keep their state, and have
      zeros as outputs.
    maximum_iterations: The largest number of steps; None for no limit.
    parallel_iterations: An argument of `tf.while_loop`.
    swap_memory: An argument of `tf.while_loop`.
    scope: The variable scope; "decoder" by default.
    **kwargs: Ignored; TensorFlow 1.15 gave them to decoders of Keras.

  Returns:
    The outputs, the last state, and the lengths of the sequences.
  """
  if not hasattr(decoder, "step") or not hasattr(decoder, "initialize"):
    raise TypeError(f"{decoder!r} is not a Decoder")
  with tf.variable_scope(scope, "decoder") as variables:
    if not tf.executing_eagerly() and variables.caching_device is None:
      variables.set_caching_device(lambda op: op.device)
    # A helper may know its batch size only then.
    finished, inputs, state = decoder.initialize()
    batch = decoder.batch_size
    static_batch = tf.get_static_value(tf.convert_to_tensor(batch))

    def make_array(size: Any, dtype: Any) -> Any:
      shape = None
      if isinstance(size, tf.TensorShape) and size.rank:
        shape = tf.TensorShape([static_batch]).concatenate(size)
      return tf.TensorArray(
        dtype, size=0, dynamic_size=True, element_shape=shape
      )

    sizes, dtypes = decoder.output_size, decoder.output_dtype
    arrays = tf.nest.map_structure(make_array, sizes, dtypes)
    padding = None
    if impute_finished:
      padding = tf.nest.map_structure(
        lambda size, dtype: make_zeros(size, batch, dtype), sizes, dtypes
      )

    def step(
      time: Any, arrays: Any, state: Any, inputs: Any, done: Any, lengths: Any
    ) -> tuple[Any, ...]:
      outputs, new_state, inputs, now_done = decoder.step(time, inputs, state)
      if not decoder.tracks_own_finished:
        now_done = tf.logical_or(now_done, done)
      lengths = tf.where(done, lengths, tf.fill(tf.shape(lengths), time + 1))
      if impute_finished:
        outputs = tf.nest.map_structure(
          lambda value, zeros: tf.where(done, zeros, value), outputs, padding
        )
        new_state = tf.nest.map_structure(
          lambda new, old: _keep_if(done, old, new), new_state, state
        )
      arrays = tf.nest.map_structure(
        lambda array, value: array.write(time, value), arrays, outputs
      )
      return time + 1, arrays, new_state, inputs, now_done, lengths

    if maximum_iterations is not None:
      maximum_iterations = tf.convert_to_tensor(
        maximum_iterations, tf.int32, name="maximum_iterations"
      )
      finished = tf.logical_or(finished, maximum_iterations <= 0)
    lengths = tf.zeros_like(finished, tf.int32)
    values = tf.while_loop(
      lambda *values: tf.logical_not(tf.reduce_all(values[4])),
      step,
      (tf.constant(0), arrays, state, inputs, finished, lengths),
      parallel_iterations=parallel_iterations,
      maximum_iterations=maximum_iterations,
      swap_memory=swap_memory,
    )
    outputs = tf.nest.map_structure(lambda array: array.stack(), values[1])
    state, lengths = values[2], values[5]
    # The base class raises the error: there is nothing to do.
    with contextlib.suppress(NotImplementedError):
      outputs, state = decoder.finalize(outputs, state, lengths)
    if not output_time_major:
      outputs = tf.nest.map_structure(swap_batch_and_time, outputs)
  return outputs, state, lengths


def _keep_if(finished: Any, old: Any, new: Any) -> Any:
  """Returns the old state of finished sequences, the new of others."""
  if isinstance(old, tf.TensorArray):
    return new
  new.set_shape(old.shape)
  return new if new.shape.rank == 0 else tf.where(finished, old, new)

# SPDX-License-Identifier: Apache-2.0
"""Cells of `tf.contrib.rnn`.

Inputs are floats [batch, depth]. Outputs and states are [batch, num_units] in
their dtype, if a cell does not say otherwise.

Variables have the names that TensorFlow 1.15 gave them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow.compat.v1 as tf

from tf1_contrib.private import linear
from tf1_contrib.rnn_blocks import LSTMStateTuple
from tf1_contrib.rnn_blocks import LSTMUnitsCell
from tf1_contrib.rnn_blocks import RNNCell
from tf1_contrib.rnn_blocks import UnitsCell


class LayerNormBasicLSTMCell(LSTMUnitsCell):
  """An LSTM cell with layer normalization and recurrent dropout."""

  def __init__(
    self,
    num_units: int,
    forget_bias: float = 1.0,
    input_size: Any = None,
    activation: Callable[[Any], Any] = tf.tanh,
    layer_norm: bool = True,
    norm_gain: float = 1.0,
    norm_shift: float = 0.0,
    dropout_keep_prob: Any = 1.0,
    dropout_prob_seed: int | None = None,
    reuse: bool | None = None,
  ):
    del input_size
    super().__init__(num_units, reuse)
    self._forget_bias = forget_bias
    self._activate = activation
    self._norm = layer_norm
    self._gain, self._shift = norm_gain, norm_shift
    self._keep, self._seed = dropout_keep_prob, dropout_prob_seed

  def _normalize(self, value: Any, name: str) -> Any:
    """Returns a value that is normalized over its last dimension."""
    if not self._norm:
      return value
    with tf.variable_scope(name):
      size, dtype = [value.shape[-1]], value.dtype
      gamma = tf.get_variable(
        "gamma", size, dtype, tf.constant_initializer(self._gain)
      )
      beta = tf.get_variable(
        "beta", size, dtype, tf.constant_initializer(self._shift)
      )
    mean, variance = tf.nn.moments(value, [-1], keep_dims=True)
    return tf.nn.batch_normalization(value, mean, variance, beta, gamma, 1e-12)

  def call(self, inputs: Any, state: Any) -> Any:
    """Runs a step."""
    cell, output = state
    size = 4 * self._units
    values = linear([inputs, output], size, bias=False)
    if not self._norm:
      values += tf.get_variable("bias", [size], inputs.dtype)
    i, j, f, o = (
      self._normalize(value, name)
      for value, name in zip(
        tf.split(values, 4, 1), ("input", "transform", "forget", "output")
      )
    )
    new = self._activate(j)
    if not isinstance(self._keep, float) or self._keep < 1:
      new = tf.nn.dropout(new, self._keep, seed=self._seed)
    cell = cell * tf.sigmoid(f + self._forget_bias) + tf.sigmoid(i) * new
    cell = self._normalize(cell, "state")
    output = self._activate(cell) * tf.sigmoid(o)
    return output, LSTMStateTuple(cell, output)


class NASCell(LSTMUnitsCell):
  """The cell that neural architecture search found.

  With `num_proj`, outputs are [batch, num_proj].
  """

  def __init__(
    self,
    num_units: int,
    num_proj: int | None = None,
    use_bias: bool = False,
    reuse: bool | None = None,
    **kwargs: Any,
  ):
    super().__init__(num_units, reuse, **kwargs)
    self._projected, self._bias = num_proj, use_bias

  @property
  def output_size(self) -> int:
    """The size of the output."""
    return self._projected or self._units

  def call(self, inputs: Any, state: Any) -> Any:
    """Runs a step."""
    cell, output = state
    size, dtype = 8 * self._units, inputs.dtype
    recurrent = tf.get_variable(
      "recurrent_kernel", [self.output_size, size], dtype
    )
    from_output = tf.matmul(output, recurrent)
    from_inputs = linear(inputs, size, bias=False)
    if self._bias:
      from_output += tf.get_variable(
        "bias", [size], dtype, initializer=tf.zeros_initializer()
      )
    pairs = list(zip(tf.split(from_inputs, 8, 1), tf.split(from_output, 8, 1)))
    first = [
      activate(x * y if i == 3 else x + y)
      for i, (activate, (x, y)) in enumerate(zip(_NAS_FIRST, pairs))
    ]
    second = [
      tf.tanh(first[0] * first[1]),
      tf.tanh(first[2] + first[3]),
      tf.tanh(first[4] * first[5]),
      tf.sigmoid(first[6] + first[7]),
    ]
    cell = tf.tanh(second[0] + cell) * second[1]
    output = tf.tanh(cell * tf.tanh(second[2] + second[3]))
    if self._projected:
      output = tf.matmul(
        output,
        tf.get_variable(
          "projection_weights", [self._units, self._projected], dtype
        ),
      )
    return output, LSTMStateTuple(cell, output)


_NAS_FIRST = (
  tf.sigmoid,
  tf.nn.relu,
  tf.sigmoid,
  tf.nn.relu,
  tf.tanh,
  tf.sigmoid,
  tf.tanh,
  tf.sigmoid,
)


class UGRNNCell(UnitsCell):
  """A cell with one gate, which updates the state."""

  def __init__(
    self,
    num_units: int,
    initializer: Any = None,
    forget_bias: float = 1.0,
    activation: Callable[[Any], Any] = tf.tanh,
    reuse: bool | None = None,
  ):
    super().__init__(num_units, reuse)
    self._initializer = initializer
    self._forget_bias = forget_bias
    self._activate = activation

  def call(self, inputs: Any, state: Any) -> Any:
    """Runs a step."""
    scope = tf.get_variable_scope()
    with tf.variable_scope(scope, initializer=self._initializer):
      gate, new = tf.split(linear([inputs, state], 2 * self._units), 2, 1)
    gate = tf.sigmoid(gate + self._forget_bias)
    state = gate * state + (1 - gate) * self._activate(new)
    return state, state


class SRUCell(UnitsCell):
  """A simple recurrent unit, whose gates do not depend on the state."""

  def __init__(
    self,
    num_units: int,
    activation: Callable[[Any], Any] | None = None,
    reuse: bool | None = None,
    name: str | None = None,
    **kwargs: Any,
  ):
    super().__init__(num_units, reuse, name=name, **kwargs)
    self._activate = activation or tf.tanh

  def call(self, inputs: Any, state: Any) -> Any:
    """Runs a step."""
    values = linear(inputs, 4 * self._units, bias=False)
    new, forget, reset, skipped = tf.split(values, 4, 1)
    bias = tf.get_variable(
      "bias",
      [2 * self._units],
      inputs.dtype,
      initializer=tf.zeros_initializer(),
    )
    gates = tf.sigmoid(tf.concat([forget, reset], 1) + bias)
    forget, reset = tf.split(gates, 2, 1)
    state = forget * state + (1 - forget) * new
    return reset * self._activate(state) + (1 - reset) * skipped, state


class ConvLSTMCell(RNNCell):
  """An LSTM cell with convolutions in place of products of matrices.

  Args:
    conv_ndims: The number of dimensions between batch and channels: 1 to 3.
    input_shape: The shape of the inputs, floats, without the batch: [...,
      channels].
    output_channels: The channels of state and output, [batch, ...,
      output_channels].
    kernel_shape: The kernel's size in each dimension.
    use_bias: Whether there is a bias.
    skip_connection: Whether outputs have the inputs' channels, too.
    forget_bias: The forget gate's bias.
    initializers: Ignored.
    name: The cell's name.
  """

  def __init__(
    self,
    conv_ndims: int,
    input_shape: Any,
    output_channels: int,
    kernel_shape: Any,
    use_bias: bool = True,
    skip_connection: bool = False,
    forget_bias: float = 1.0,
    initializers: Any = None,
    name: str = "conv_lstm_cell",
  ):
    del initializers
    super().__init__(name=name)
    if conv_ndims != len(input_shape) - 1:
      raise ValueError(
        f"the input shape {input_shape} does not fit conv_ndims={conv_ndims}"
      )
    self._dims = conv_ndims
    self._shape = list(input_shape)
    self._channels = output_channels
    self._kernel_shape = list(kernel_shape)
    self._bias, self._skip = use_bias, skip_connection
    self._forget_bias = forget_bias

  @property
  def state_size(self) -> Any:
    """The shapes of cell state and output."""
    shape = tf.TensorShape([*self._shape[:-1], self._channels])
    return LSTMStateTuple(shape, shape)

  @property
  def output_size(self) -> Any:
    """The shape of the output."""
    channels = self._channels + (self._shape[-1] if self._skip else 0)
    return tf.TensorShape([*self._shape[:-1], channels])

  def call(self, inputs: Any, state: Any, scope: Any = None) -> Any:
    """Runs a step."""
    cell, output = state
    joined = tf.concat([inputs, output], -1)
    size = 4 * self._channels
    kernel = tf.get_variable(
      "kernel", [*self._kernel_shape, joined.shape[-1], size], joined.dtype
    )
    values = tf.nn.convolution(joined, kernel, "SAME")
    if self._bias:
      values += tf.get_variable(
        "biases", [size], joined.dtype, initializer=tf.zeros_initializer()
      )
    i, new, f, o = tf.split(values, 4, self._dims + 1)
    cell = tf.sigmoid(f + self._forget_bias) * cell
    cell += tf.sigmoid(i) * tf.tanh(new)
    output = tf.tanh(cell) * tf.sigmoid(o)
    if self._skip:
      output = tf.concat([output, inputs], -1)
    return output, LSTMStateTuple(cell, output)


class Conv1DLSTMCell(ConvLSTMCell):
  """A ConvLSTMCell of one dimension."""

  def __init__(self, name: str = "conv_1d_lstm_cell", **kwargs: Any):
    super().__init__(conv_ndims=1, name=name, **kwargs)


class Conv2DLSTMCell(ConvLSTMCell):
  """A ConvLSTMCell of two dimensions."""

  def __init__(self, name: str = "conv_2d_lstm_cell", **kwargs: Any):
    super().__init__(conv_ndims=2, name=name, **kwargs)


class Conv3DLSTMCell(ConvLSTMCell):
  """A ConvLSTMCell of three dimensions."""

  def __init__(self, name: str = "conv_3d_lstm_cell", **kwargs: Any):
    super().__init__(conv_ndims=3, name=name, **kwargs)

# SPDX-License-Identifier: Apache-2.0
"""Pieces of `tf.contrib.rnn` and `tf.contrib.cudnn_rnn`: cells of one op each.

Variables have the names that TensorFlow 1.15 gave them.
"""

from __future__ import annotations

from collections.abc import Callable
import contextlib
from typing import Any

import tensorflow.compat.v1 as tf

RNNCell: Any = tf.nn.rnn_cell.RNNCell
LSTMStateTuple: Any = tf.nn.rnn_cell.LSTMStateTuple


def _register_gradient(op: str, function: Callable[..., Any]) -> None:
  """Registers an op's gradient, unless the program has done so."""
  with contextlib.suppress(KeyError):
    tf.RegisterGradient(op)(function)


class UnitsCell(RNNCell):
  """A base class for cells whose state and output have the same size."""

  def __init__(self, num_units: int, reuse: bool | None, **kwargs: Any):
    super().__init__(_reuse=reuse, **kwargs)
    self._units = num_units

  @property
  def state_size(self) -> Any:
    """The size of the state."""
    return self._units

  @property
  def output_size(self) -> int:
    """The size of the output."""
    return self._units


class LSTMUnitsCell(UnitsCell):
  """A base class for cells whose state is a cell state and an output."""

  @property
  def state_size(self) -> Any:
    """The sizes of cell state and output."""
    return LSTMStateTuple(self._units, self.output_size)


class _BlockLSTM:
  """The variables and arguments that the ops of LSTMs have in common."""

  def __init__(
    self, num_units: int, forget_bias: Any, clip: Any, use_peephole: bool
  ):
    self.num_units = num_units
    self._attributes = {
      "forget_bias": forget_bias,
      "cell_clip": -1 if clip is None else clip,
      "use_peephole": use_peephole,
    }

  def make_arguments(self, inputs: Any, state: Any) -> dict[str, Any]:
    """Returns the ops' arguments; makes the variables."""
    units, dtype = self.num_units, inputs.dtype
    depth = inputs.shape[-1]
    if depth is None:
      raise ValueError(f"the last dimension of {inputs} must be known")
    kernel = tf.get_variable("kernel", [depth + units, 4 * units], dtype)
    bias = tf.get_variable(
      "bias", [4 * units], dtype, initializer=tf.zeros_initializer()
    )
    if self._attributes["use_peephole"]:
      peepholes = [
        tf.get_variable(f"w_{gate}_diag", [units], dtype) for gate in "ifo"
      ]
    else:
      peepholes = [tf.zeros([units], dtype)] * 3
    return {
      "x": inputs,
      "cs_prev": state[0],
      "h_prev": state[1],
      "w": kernel,
      "b": bias,
      **dict(zip(("wci", "wcf", "wco"), peepholes)),
      **self._attributes,
    }


class LSTMBlockCell(LSTMUnitsCell):
  """An LSTM cell of one op; inputs are floats [batch, depth].

  Cell state and output are [batch, num_units] in the dtype of the inputs.
  """

  def __init__(
    self,
    num_units: int,
    forget_bias: Any = 1.0,
    cell_clip: Any = None,
    use_peephole: bool = False,
    dtype: Any = None,
    reuse: bool | None = None,
    name: str = "lstm_cell",
  ):
    super().__init__(num_units, reuse, dtype=dtype, name=name)
    self._block = _BlockLSTM(num_units, forget_bias, cell_clip, use_peephole)

  def call(self, inputs: Any, state: Any) -> Any:
    """Runs a step."""
    outputs = tf.raw_ops.LSTMBlockCell(
      **self._block.make_arguments(inputs, state)
    )
    return outputs.h, LSTMStateTuple(outputs.cs, outputs.h)


def _differentiate_lstm(op: Any, *grads: Any) -> Any:
  names = ("x", "cs_prev", "h_prev", "w", "wci", "wcf", "wco", "b")
  values = dict(zip(names, op.inputs))
  results = dict(zip(("i", "cs", "f", "o", "ci", "co"), op.outputs))
  found = tf.raw_ops.LSTMBlockCellGrad(
    **values,
    **results,
    cs_grad=grads[1],
    h_grad=grads[6],
    use_peephole=op.get_attr("use_peephole"),
  )
  x, h, w = values["x"], values["h_prev"], values["w"]
  both = tf.matmul(found.dicfo, w, transpose_b=True)
  depth = x.shape[-1]
  return (
    both[:, :depth],
    found.cs_prev_grad,
    both[:, depth:],
    tf.matmul(tf.concat([x, h], 1), found.dicfo, transpose_a=True),
    found.wci_grad,
    found.wcf_grad,
    found.wco_grad,
    tf.reduce_sum(found.dicfo, 0),
  )


_register_gradient("LSTMBlockCell", _differentiate_lstm)


class LSTMBlockFusedCell:
  """An LSTM of one op over whole sequences [time, batch, depth]."""

  def __init__(
    self,
    num_units: int,
    forget_bias: Any = 1.0,
    cell_clip: Any = None,
    use_peephole: bool = False,
    reuse: bool | None = None,
    dtype: Any = None,
    name: str = "lstm_fused_cell",
  ):
    self._block = _BlockLSTM(num_units, forget_bias, cell_clip, use_peephole)
    self._dtype, self._reuse, self._name = dtype, reuse, name
    self._scope: Any = None

  @property
  def num_units(self) -> int:
    """The size of the output."""
    return self._block.num_units

  def __call__(
    self,
    inputs: Any,
    initial_state: Any = None,
    dtype: Any = None,
    sequence_length: Any = None,
    scope: Any = None,
  ) -> tuple[Any, Any]:
    """Runs all steps.

    Args:
      inputs: Floats [time, batch, depth], or a list of tensors [batch, depth].
      initial_state: Cell state and output before the first step, both [batch,
        num_units].
      dtype: The dtype of a new initial state.
      sequence_length: The lengths, integers [batch]; outputs after them are
        zeros.
      scope: The variable scope.

    Returns:
      The outputs [time, batch, num_units], or a list as the inputs; and the
      state after the last step of each sequence.
    """
    is_list = isinstance(inputs, list)
    sequence = tf.stack(inputs) if is_list else tf.convert_to_tensor(inputs)
    if initial_state is None:
      zeros = tf.zeros(
        [tf.shape(sequence)[1], self.num_units],
        dtype or self._dtype or sequence.dtype,
      )
      initial_state = zeros, zeros
    first = self._scope is None
    with tf.variable_scope(
      scope or self._scope,
      self._name,
      reuse=self._reuse if first else True,
    ) as self._scope:
      states, outputs = self._run(sequence, initial_state, sequence_length)
    if sequence_length is None:
      state = LSTMStateTuple(states[-1], outputs[-1])
    else:
      mask = tf.sequence_mask(
        sequence_length, tf.shape(sequence)[0], outputs.dtype
      )
      outputs *= tf.expand_dims(tf.transpose(mask), -1)
      state = LSTMStateTuple(
        _take_last(initial_state[0], states, sequence_length),
        _take_last(initial_state[1], outputs, sequence_length),
      )
    return tf.unstack(outputs) if is_list else outputs, state

  def _run(self, inputs: Any, state: Any, lengths: Any) -> tuple[Any, Any]:
    """Returns the cell states and the outputs of all steps."""
    steps = tf.shape(inputs)[0] if lengths is None else tf.reduce_max(lengths)
    outputs = tf.raw_ops.BlockLSTM(
      seq_len_max=tf.cast(steps, tf.int64),
      **self._block.make_arguments(inputs, state),
    )
    return outputs.cs, outputs.h


def _take_last(initial: Any, values: Any, lengths: Any) -> Any:
  """Returns the value after each sequence's last step."""
  values = tf.concat([tf.expand_dims(initial, 0), values], 0)
  batch = tf.range(tf.shape(values)[1])
  return tf.gather_nd(
    values, tf.stack([tf.cast(lengths, tf.int32), batch], axis=1)
  )


class GRUBlockCell(UnitsCell):
  """A GRU cell of one op; inputs are floats [batch, depth].

  State and output are [batch, num_units] in the dtype of the inputs.
  """

  _NAMES = ("w_ru", "b_ru", "w_c", "b_c")

  def __init__(
    self,
    num_units: int | None = None,
    cell_size: int | None = None,
    reuse: bool | None = None,
    name: str = "gru_cell",
  ):
    if (num_units is None) == (cell_size is None):
      raise ValueError(
        f"got num_units={num_units} and cell_size={cell_size}: exactly one is "
        "needed"
      )
    super().__init__(num_units or cell_size or 0, reuse, name=name)

  def call(self, inputs: Any, h_prev: Any) -> Any:
    """Runs a step."""
    depth = inputs.shape[-1] + self._units
    arguments = {}
    for i, (key, size) in enumerate((("ru", 2), ("c", 1))):
      kernel, bias = self._NAMES[2 * i : 2 * i + 2]
      arguments[f"w_{key}"] = tf.get_variable(
        kernel, [depth, size * self._units], inputs.dtype
      )
      arguments[f"b_{key}"] = tf.get_variable(
        bias,
        [size * self._units],
        inputs.dtype,
        initializer=tf.constant_initializer(float(i == 0)),
      )
    outputs = tf.raw_ops.GRUBlockCell(x=inputs, h_prev=h_prev, **arguments)
    return outputs.h, outputs.h


class GRUBlockCellV2(GRUBlockCell):
  """A GRU cell of one op, with GRUCell's names of variables."""

  _NAMES = ("gates/kernel", "gates/bias", "candidate/kernel", "candidate/bias")


def _differentiate_gru(op: Any, *grads: Any) -> Any:
  x, h, w_ru, w_c, b_ru, b_c = op.inputs
  r, u, c, _ = op.outputs
  found = tf.raw_ops.GRUBlockCellGrad(
    x=x,
    h_prev=h,
    w_ru=w_ru,
    w_c=w_c,
    b_ru=b_ru,
    b_c=b_c,
    r=r,
    u=u,
    c=c,
    d_h=grads[3],
  )
  gates, candidate = found.d_r_bar_u_bar, found.d_c_bar
  return (
    found.d_x,
    found.d_h_prev,
    tf.matmul(tf.concat([x, h], 1), gates, transpose_a=True),
    tf.matmul(tf.concat([x, h * r], 1), candidate, transpose_a=True),
    tf.reduce_sum(gates, 0),
    tf.reduce_sum(candidate, 0),
  )


_register_gradient("GRUBlockCell", _differentiate_gru)


class CudnnCompatibleLSTMCell(LSTMBlockCell):
  """An LSTM cell with the numbers and the variables of cuDNN's LSTM."""

  def __init__(self, num_units: int, reuse: bool | None = None):
    super().__init__(
      num_units,
      forget_bias=0,
      reuse=reuse,
      name="cudnn_compatible_lstm_cell",
    )

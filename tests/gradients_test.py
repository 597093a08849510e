# SPDX-License-Identifier: Apache-2.0
"""Tests the functions `scale`, `unscale` and `all_finite`."""

import contextlib
import math

import helpers
import numpy as np
import pytest
import tensorflow as tf

import tf_compat_lossscale as tfl
from tf_compat_lossscale import gradients

tf1 = tf.compat.v1
_BIG = float(np.finfo(np.float32).max)


@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16, tf.float32])
def test_scale_keeps_the_dtype_of_the_loss(dtype):
  loss = tf.constant([1.5, -2.0], dtype)
  calls = []
  scaled = gradients.scale(lambda: calls.append(1) or loss, tf.constant(8.0))
  assert not calls
  for value in (scaled(), gradients.scale(loss, tf.constant(8.0))):
    assert value.dtype == dtype
    assert tf.cast(value, tf.float32).numpy().tolist() == [12.0, -16.0]
  assert calls == [1]


@pytest.mark.parametrize(
  "dtype", [tf.float16, tf.bfloat16, tf.float32, tf.float64, tf.complex64]
)
def test_unscale_keeps_dtypes(dtype):
  (grad,) = gradients.unscale(
    [tf.constant([2.0, -4.0], dtype)], tf.constant(2.0)
  )
  assert grad.dtype == dtype
  assert tf.cast(grad, tf.complex64).numpy().tolist() == [1, -2]


@pytest.mark.parametrize(
  ("dtype", "grad", "scale", "expected"),
  [
    # In float16 both 2**25 and its reciprocal are out of range.
    (tf.float16, 2.0**14, 2.0**25, 2.0**-11),
    (tf.float64, 1.0, 3.0, pytest.approx(1 / 3, rel=1e-15)),
  ],
)
def test_unscale_is_exact(dtype, grad, scale, expected):
  (grad,) = gradients.unscale([tf.constant(grad, dtype)], tf.constant(scale))
  assert grad.numpy() == expected


@pytest.mark.parametrize("dtype", ["float32", "complex64", "complex128"])
def test_a_small_gradient_of_a_large_scale_is_not_0(dtype):
  scale = tf.Variable(2.0**118)

  @tf.function(autograph=False)
  def unscale():
    # A graph optimizer would multiply the reciprocal by the small number first.
    return gradients.unscale([tf.cast(scale, dtype) * [2.0**-10]], scale)

  assert unscale()[0].numpy().tolist() == [2.0**-10]


def test_a_penalty_of_an_unscaled_gradient_trains():
  w = tf.Variable([2.0, 1.0])
  opt = tfl.MixedPrecisionLossScaleOptimizer(
    tf.compat.v1.train.GradientDescentOptimizer(0.01), 1024
  )

  @tf.function
  def step(real):
    def compute_loss():
      with tf.GradientTape() as tape:
        tape.watch(real)
        score = gradients.scale(tf.reduce_sum(real * w, axis=1), 1024.0)
      (grad,) = gradients.unscale([tape.gradient(score, real)], 1024.0)
      return 5.0 * tf.reduce_mean(tf.reduce_sum(grad**2, axis=1))

    opt.minimize(compute_loss, var_list=[w])

  step(tf.zeros([4, 2]))
  # The gradient by `real` is w, so that by w is 5 * 2 * w.
  np.testing.assert_allclose(w, [2 - 0.1 * 2, 1 - 0.1], rtol=1e-6)


def test_unscale_of_sparse_and_missing_gradients():
  sparse = tf.IndexedSlices(
    tf.constant([[4.0], [8.0]]), tf.constant([1, 1]), tf.constant([3, 1])
  )
  unscaled, nothing = gradients.unscale([sparse, None], tf.constant(4.0))
  assert nothing is None
  assert isinstance(unscaled, tf.IndexedSlices)
  assert unscaled.values.numpy().tolist() == [[1], [2]]
  assert unscaled.indices is sparse.indices
  assert unscaled.dense_shape is sparse.dense_shape


@pytest.mark.parametrize(
  ("grads", "expected"),
  [
    ([], True),
    (None, True),
    (1.0, True),
    ([np.zeros([0], np.float32)], True),
    ([np.array([_BIG, _BIG, _BIG], np.float32)], True),  # The sum overflows.
    ([np.array([_BIG, -_BIG, 1e-45, -0.0], np.float32)], True),
    ([np.array([65504.0] * 9, np.float16)], True),
    ([np.array([1e308] * 9, np.float64)], True),
    ([np.array([math.inf, -math.inf], np.float32)], False),  # The sum is NaN.
    ([np.array([0, math.nan], np.float64)], False),
    ([np.array(math.inf, np.float16)], False),
    ([tf.constant([1.0, math.inf], tf.bfloat16)], False),
    ([np.array([3, 4], np.int32), np.array([True])], True),
    ({"a": [1.0, {"b": (2.0, None)}]}, True),
    ({"a": [1.0, {"b": (2.0, -math.inf, None)}]}, False),
    (tf.IndexedSlices(tf.constant([1.0, 2.0]), tf.constant([0, 1])), True),
    (tf.IndexedSlices(tf.constant([math.nan]), tf.constant([0])), False),
    ([np.float64(3), np.zeros([0, 4], "f"), 7, np.array([1, 2])], True),
    ([np.array([1, complex(0, math.nan)], np.complex64)], False),
  ],
)
def test_all_finite(grads, expected):
  answer = gradients.all_finite(grads)
  assert answer.dtype == tf.bool and answer.shape == ()
  assert bool(answer) == expected
  if grads not in ([], None):
    function = tf.function(gradients.all_finite, autograph=False)
    assert bool(function(grads)) == expected


def test_sparse_gradients_are_checked_by_their_values():
  with tf.Graph().as_default(), tf.compat.v1.Session() as session:
    rows = tf.constant([[1.0], [math.nan]])
    sparse = tf.IndexedSlices(rows, tf.constant([0, 10**9]), [2 * 10**9, 1])
    # A dense tensor of this shape would take 8 GB.
    assert not session.run(gradients.all_finite([sparse]))


# Sizes on both sides of those at which `all_finite` changes its method: small
# tensors are concatenated, and sums are tried first if elements are many.
_SETS = {
  "one scalar": [()],
  "scalars": [()] * 140,
  "one small": [(5,)],
  "small ones": [(16,), (3, 4), (7, 4), (2, 3, 4), (), (), (5,), (0,), (0, 4)],
  "at the bounds": [(8192,), (8193,), (64, 128), (64, 129)],
  "few in all": [(8192,), (8192,)],
  "many in all": [(8192,), (8192,), (1,)],
  "of one shape": [(30, 40)] * 20 + [(7,)] * 3,
  "large": [(300, 100), (70_000,)],
  "of all kinds": [(300, 100), (16,), (16,), (), (4, 4), (2, 4), (9000,)],
}
_DTYPES = {
  "float16": 6e4,
  "bfloat16": 3e38,
  "float32": 3e38,
  "float64": 1.5e308,
  "complex64": 3e38,
}


@contextlib.contextmanager
def _checks(specs):
  """Yields mode -> a function that runs `all_finite` on arrays in the mode."""
  function = tf.function(
    lambda *args: gradients.all_finite(args),
    input_signature=specs,
    autograph=False,
  )
  with contextlib.ExitStack() as stack:
    checks = {
      "eager": lambda arrays: gradients.all_finite(
        [tf.constant(array) for array in arrays]
      ),
      "function": lambda arrays: function(*arrays),
    }
    for mode in helpers.GRAPH_MODES:
      with helpers.mode_scope(mode) as graph:
        fed = [tf.compat.v1.placeholder(s.dtype, s.shape) for s in specs]
        answer = gradients.all_finite(fed)
      session = tf.compat.v1.Session(graph=graph)
      stack.callback(session.close)
      run = session.make_callable(answer, fed)
      checks[mode] = lambda arrays, run=run: run(*arrays)
    yield checks


def _assert_answers(arrays, expected, checks):
  answers = {mode: bool(check(arrays)) for mode, check in checks.items()}
  assert set(answers.values()) == {expected}, answers


# The code treats all real dtypes alike. So float32 has all cases, and other
# dtypes have sets that are joined, or summed, or both. Gradients of unknown
# shapes are never joined, so 140 of them differ from 23 in nothing but time.
_JOINED_AND_SUMMED = ("small ones", "at the bounds", "of all kinds")
_EXACT = helpers.Rows(
  (kind, dtype, known)
  for kind in _SETS
  for dtype in _DTYPES
  for known in (True, False)
  if (dtype == "float32" and (known or kind != "scalars"))
  or (known and kind in _JOINED_AND_SUMMED)
  or (kind == "of all kinds" and dtype == "complex64")
)


@pytest.mark.parametrize(("kind", "dtype", "known"), _EXACT)
def test_the_answer_is_exact_in_every_mode(kind, dtype, known):
  random = np.random.default_rng(len(kind))
  numpy_dtype = tf.as_dtype(dtype).as_numpy_dtype
  specs = [
    tf.TensorSpec(shape if known else None, dtype) for shape in _SETS[kind]
  ]
  with _checks(specs) as checks:
    # Sums of these values are finite, overflow or are close to 0.
    for value in (1.0, _DTYPES[dtype], 1e-45, -0.0):
      arrays = [np.full(s, value, numpy_dtype) for s in _SETS[kind]]
      arrays[-1] = -arrays[-1]
      _assert_answers(arrays, True, checks)
    for bad in (math.inf, -math.inf, math.nan):
      arrays = [np.ones(s, numpy_dtype) for s in _SETS[kind]]
      full = [array for array in arrays if array.size]
      chosen = full[random.integers(len(full))]
      at = tuple(random.integers(size) for size in chosen.shape)
      chosen[at] = complex(1, bad) if dtype == "complex64" else bad
      _assert_answers(arrays, False, checks)


def test_infinities_that_cancel_in_a_sum_are_found():
  for shapes in (
    [(100_000,)],
    [(8,), (8,)],
    [(8000,)] * 3,
    [(100_000,), (100_000,)],
  ):
    arrays = [np.zeros(shape, np.float32) for shape in shapes]
    with _checks([tf.TensorSpec(shape) for shape in shapes]) as checks:
      for i, j in ((3, 5), (3, 3) if len(shapes) > 1 else (3, 4)):
        arrays[0][i], arrays[-1][j] = math.inf, -math.inf
        _assert_answers(arrays, False, checks)
        arrays[0][i] = arrays[-1][j] = 0


def test_products_that_overflow_are_found_by_whatever_optimizer():
  # An aggressive arithmetic optimizer adds x * z and y * z as (x + y) * z, in
  # which large x and y cancel.
  config = tf.compat.v1.ConfigProto()
  options = config.graph_options.rewrite_options
  options.arithmetic_optimization = options.AGGRESSIVE
  for mode in helpers.GRAPH_MODES:
    with helpers.mode_scope(mode) as graph:
      x, y = (tf.compat.v1.placeholder(tf.float32, [8192]) for _ in range(2))
      z = tf.compat.v1.placeholder(tf.float32, [])
      answer = gradients.all_finite([x * z, y * z, tf.ones([9])])
    with tf.compat.v1.Session(graph=graph, config=config) as session:
      ones = np.ones([8192], np.float32)
      for factor, expected in ((1e30, False), (1.0, True)):
        feeds = {x: 1e20 * ones, y: -1e20 * ones, z: factor}
        assert session.run(answer, feeds) == expected


def test_shapes_of_tensorflow_1_will_do():
  tf.compat.v1.disable_v2_tensorshape()
  try:
    for grads in ([tf.ones([2, 3]), tf.ones([4, 3])], [tf.ones([99, 999])]):
      assert gradients.all_finite(grads)
      assert not gradients.all_finite([*grads, tf.constant([[math.nan] * 3])])
  finally:
    tf.compat.v1.enable_v2_tensorshape()


@pytest.mark.parametrize(
  "names, expected",
  [
    (["a", "b"], ["a", "b"]),
    (["a", "b", "a"], ["a 0", "b", "a 2"]),
    # A name may look as if it were numbered.
    (["a", "a", "a 1"], ["a 0", "a 1 1", "a 1"]),
    (["a 1", "a", "a", "a 1"], ["a 1 0", "a 1", "a 2", "a 1 3"]),
    (["a"] * 3, ["a 0", "a 1", "a 2"]),
  ],
)
def test_names_of_gradients_are_unique(names, expected):
  grads = gradients.NamedGradients(range(len(names)), names)
  assert list(gradients.name_gradients(grads)) == expected


def train_with_getter(dtype, steps=20):
  """Returns weights after training a network in a dtype, and its variables."""
  getter = gradients.float32_variable_storage_getter
  rng = np.random.default_rng(0)
  x, y = (rng.normal(size=(64, n)).astype(np.float32) for n in (8, 1))
  with tf.Graph().as_default(), tf1.Session() as session:
    with tf1.variable_scope("net", custom_getter=getter):
      init = tf1.glorot_uniform_initializer(seed=1)
      w = tf1.get_variable("w", [8, 4], dtype, init)
      v = tf1.get_variable("v", dtype=dtype, initializer=tf.ones([4, 1], dtype))
      kept = tf1.get_variable("kept", [2], dtype, trainable=False)
    assert w.dtype == v.dtype == kept.dtype.base_dtype == dtype
    hidden = tf.tanh(tf.matmul(tf.cast(x, dtype), w))
    error = tf.cast(tf.matmul(hidden, v), tf.float32) - y
    loss = tf.reduce_mean(tf.square(error))
    opt = tfl.MixedPrecisionLossScaleOptimizer(
      tf1.train.MomentumOptimizer(0.01, 0.9), "dynamic"
    )
    step = opt.minimize(loss)
    session.run(tf1.global_variables_initializer())
    for _ in range(steps):
      session.run(step)
    trained = tf1.trainable_variables()
    return session.run(trained), {
      var.op.name: var.dtype.base_dtype for var in tf1.global_variables()
    }


@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16])
def test_a_half_precision_graph_trains_as_a_float32_one(dtype):
  expected, names = train_with_getter(tf.float32)
  found, same_names = train_with_getter(dtype)
  assert list(names) == list(same_names)
  assert same_names.pop("net/kept") == dtype
  assert not {tf.float16, tf.bfloat16} & set(same_names.values())
  tolerance = 0.005 if dtype == tf.float16 else 0.04
  for one, other in zip(expected, found):
    np.testing.assert_allclose(other, one, atol=tolerance)
    assert not np.array_equal(other, one)  # It did compute in `dtype`.

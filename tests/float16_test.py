# SPDX-License-Identifier: Apache-2.0
"""Trains in float16 on the CPU, by the graph rewrite."""

import functools
import itertools
import re
import threading

import half_precision
import helpers
import numpy as np
import processes
import pytest
import tensorflow as tf

import tf_compat_lossscale as tfl
from tf_compat_lossscale import distributed
from tf_compat_lossscale import environment
from tf_compat_lossscale import graph_rewrite
from tf_compat_lossscale import monitoring
from tf_compat_lossscale import policies
from tf_compat_lossscale._core import legacy_names

tf1 = tf.compat.v1
_SCALE = 2.0**26  # The gradients times this overflow in float16.
_PERIOD = 8


@pytest.fixture(autouse=True)
def on_cpu():
  with half_precision.on_cpu():
    yield


def momentum():
  return tf1.train.MomentumOptimizer(0.01, 0.9)


def whole():
  """Returns an optimizer for a program in float32."""
  scale = tfl.DynamicLossScale(8.0, 1000)
  opt = tfl.MixedPrecisionLossScaleOptimizer(momentum(), scale)
  return opt, scale.current_loss_scale


def own(*rule):
  scale = helpers.OWN.DynamicLossScale(*rule)
  opt = helpers.OWN.MixedPrecisionLossScaleOptimizer(momentum(), scale)
  return opt, scale._current_loss_scale


def compat(*rule):
  scale = tfl.DynamicLossScale(*(rule or (_SCALE, _PERIOD)))
  opt = tfl.enable_mixed_precision_graph_rewrite(momentum(), scale)
  return opt, scale.current_loss_scale


def growth_backoff(start, period, factor):
  scale = policies.GrowthBackoff(
    start, factor, 1 / factor, period, 2.0**-20, 2.0**126, at_minimum="raise"
  )
  opt = tfl.enable_mixed_precision_graph_rewrite(momentum(), scale)
  return opt, scale.current_loss_scale


def managed(start, period, factor):
  graph_rewrite.turn_on()
  manager = tfl.contrib.ExponentialUpdateLossScaleManager(
    start, period, 1, factor, 1 / factor
  )
  return tfl.contrib.LossScaleOptimizer(momentum(), manager), manager.loss_scale


def accumulating(*rule):
  opt, scale = compat(*rule)
  return tfl.accumulate(opt, steps=2), scale


def agreeing(*rule):
  opt, scale = compat(*rule)
  return distributed.agree(opt, tf.identity), scale


def by_environment(start, period, factor):
  with pytest.MonkeyPatch.context() as context:
    context.setenv(legacy_names.MIXED_PRECISION, "1")
    opt = momentum()
  scale = environment.find_loss_scale(opt)
  scale._multiplier = factor
  return opt, scale.current_loss_scale


_MAKERS = {
  each.__name__: each
  for each in (
    compat,
    growth_backoff,
    managed,
    accumulating,
    agreeing,
    by_environment,
  )
}


@pytest.fixture
def honored():
  tfl.honor_environment(quiet=True)
  yield
  tfl.ignore_environment()


@pytest.mark.parametrize(
  ("mode", "api"),
  helpers.pairs([*helpers.GRAPH_MODES, "function"], _MAKERS),
)
def test_the_scale_falls_and_grows_and_the_loss_falls(mode, api, honored):
  expected = half_precision.Network(mode, whole).train(80)[0]
  make = functools.partial(_MAKERS[api], _SCALE, _PERIOD, 2.0)
  net = half_precision.Network(mode, make)
  losses, scales = net.train(80 * getattr(net.opt, "steps", 1))
  if api != "by_environment":  # Its scale begins at 2**15: nothing overflows.
    lowest = min(scales)
    skipped = scales.index(lowest)
    assert scales[0] == _SCALE and lowest <= 2.0**20
    assert losses[:skipped] == [losses[0]] * skipped
    assert max(scales[skipped:]) > lowest
  falls = sum(b < a for a, b in itertools.pairwise(scales))
  assert losses[-1] == pytest.approx(expected[79 - falls], rel=0.02)
  assert losses[-1] < expected[0] / 4
  if net.graph is not None:
    count = graph_rewrite.count_float16(net.session, net.fetches)
    assert count.products == (8, 8) and count.casts > 0
    assert count.convolutions == (0, 0)


def test_replicas_skip_and_train():
  strategy = helpers.two_replicas()
  net = half_precision.Network("function", compat, strategy)
  starts = net.read()[:-1]
  net.train(5)
  assert all((x == y).all() for x, y in zip(starts, net.read()))
  net.train(25)
  assert all((x != y).any() for x, y in zip(starts, net.read()))
  assert 2.0**10 < float(net.opt.loss_scale()) < 2.0**21


def test_a_checkpoint_has_float32_and_resumes(tmp_path):
  net = half_precision.Network("graph_v1", compat)
  net.train(20)
  with net.graph.as_default():
    path = net.saver.save(net.session, str(tmp_path / "ckpt"))
  dtypes = tf.train.load_checkpoint(path).get_variable_to_dtype_map()
  assert tf.float16 not in dtypes.values()
  other = half_precision.Network("graph_v1", compat)
  with other.graph.as_default():
    other.saver.restore(other.session, path)
  assert other.train(20) == net.train(20)


@pytest.mark.parametrize("mode", helpers.GRAPH_MODES)
def test_the_hook_names_gradients_that_overflow(mode, caplog, tmp_path):
  net = half_precision.Network(mode, compat)
  hook = monitoring.LossScaleHook(net.opt, str(tmp_path))
  with net.graph.as_default():
    hook.begin()
    hook.after_create_session(net.session, None)
  for _ in range(12):
    hook.run(net.session, net.fetches)
  assert "-> 3.35544e+07; not finite: w0, w1, w2." in caplog.text
  assert "131072 -> 65536; not finite: w2." in caplog.text


# What converts ---------------------------------------------------------------


def test_sessions():
  assert not half_precision.is_float16()
  graph_rewrite.turn_on()
  config = tf1.ConfigProto(device_count={"CPU": 2})
  before = config.SerializeToString()
  assert half_precision.is_float16()
  assert half_precision.is_float16(config)
  assert config.SerializeToString() == before
  # Here TensorFlow optimizes no graph, on GPUs neither.
  assert not half_precision.is_float16(kind=tf1.InteractiveSession)
  with tf.Graph().as_default():
    value = half_precision.multiply()
    with tf1.train.MonitoredSession() as session:
      assert np.isinf(session.run(value))
      count = graph_rewrite.count_float16(session, value)
      assert count.products == (1, 1)
  tfl.disable_mixed_precision_graph_rewrite()
  assert not half_precision.is_float16()
  assert not half_precision.is_float16(config)


def test_a_config_decides_for_itself():
  options = tf1.ConfigProto()
  options.graph_options.rewrite_options.auto_mixed_precision = 1
  assert half_precision.is_float16(options)
  graph_rewrite.turn_on()
  options.graph_options.rewrite_options.auto_mixed_precision = 2
  assert not half_precision.is_float16(options)


def test_several_graphs_and_an_older_session():
  with tf.Graph().as_default():
    older, value = tf1.Session(), half_precision.multiply()
  graph_rewrite.turn_on()
  for _ in range(2):
    assert half_precision.is_float16()
  assert np.isfinite(older.run(value))
  older.close()


def test_a_second_call_and_the_way_back():
  graph_rewrite.turn_on()
  graph_rewrite.enable_on_cpu()
  assert half_precision.is_float16()
  graph_rewrite.disable_on_cpu()
  assert not half_precision.is_float16()
  assert np.isfinite(tf.function(half_precision.multiply)())
  assert not hasattr(tf1.Session.__mro__[1].__init__, "__wrapped__")


def test_functions():
  multiply = half_precision.multiply
  traced = tf.function(multiply)
  concrete = traced.get_concrete_function()
  branch = tf.function(
    lambda x: tf.cond(x > 0, multiply, lambda: 0.0), autograph=False
  )
  loop = tf.function(
    lambda x: tf.while_loop(lambda y: y < x, lambda y: y + multiply(), [0.0])
  )
  nested = tf.function(lambda: traced() + 1.0)
  one = tf.constant(1.0)
  calls = (traced, concrete, nested, lambda: branch(one), lambda: loop(one)[0])
  seen = lambda: [bool(np.isinf(call())) for call in calls]  # noqa: E731
  assert seen() == [False] * 5
  graph_rewrite.turn_on()
  assert seen() == [True] * 5  # Traced before or not.
  in_thread = []
  thread = threading.Thread(target=lambda: in_thread.extend(seen()))
  thread.start()
  thread.join()
  assert in_thread == [True] * 5
  tfl.disable_mixed_precision_graph_rewrite()
  assert seen() == [False] * 5


_FIT = """
import operator
import sys
import numpy as np
import tensorflow as tf
import tf_compat_lossscale as tfl
from tf_compat_lossscale import graph_rewrite

def is_finite(strategy, **options):
  with strategy.scope():
    model = tf.keras.Sequential([
        tf.keras.layers.Dense(4, kernel_initializer=initializer)
        for initializer in [tf.keras.initializers.Constant(1e2)] * 2])
    opt = operator.attrgetter(sys.argv[1])(tf.keras.optimizers)(1e-9)
    if hasattr(tf.keras, "ops"):  # Keras 3.
      graph_rewrite.turn_on()
      opt = tfl.keras.Keras3LossScaleOptimizer(opt, 8.0)
    else:
      opt = tfl.enable_mixed_precision_graph_rewrite(opt, 8.0)
    model.compile(opt, lambda y, out: tf.reduce_mean(out, -1), **options)
  x = np.full([4, 4], 1e2, "float32")
  return np.isfinite(model.fit(x, x, verbose=0).history["loss"][0])

[cpu] = tf.config.list_physical_devices("CPU")
logical = [tf.config.LogicalDeviceConfiguration()] * 2
tf.config.set_logical_device_configuration(cpu, logical)
one = tf.distribute.get_strategy()
two = tf.distribute.MirroredStrategy(
    ["cpu:0", "cpu:1"], tf.distribute.ReductionToOneDevice())
assert is_finite(one)
graph_rewrite.enable_on_cpu()
assert not is_finite(one) and not is_finite(two)
assert not is_finite(one, steps_per_execution=2)
assert is_finite(one, run_eagerly=True)
"""


@pytest.mark.parametrize(
  ("kind", "env"),
  [
    ("SGD", helpers.KERAS_2),
    ("legacy.SGD", helpers.KERAS_2),
    pytest.param("SGD", helpers.KERAS_3, marks=helpers.NEEDS_KERAS_3),
  ],
)
def test_fit_of_keras(kind, env):
  processes.run_forked("-c", _FIT, kind, **env)


def test_counts():
  graph_rewrite.turn_on()
  with tf.Graph().as_default(), tf1.Session() as session:
    x = tf1.placeholder(tf.float32, [1, 4, 4, 2])
    y = tf.nn.conv2d(x, tf.ones([2, 2, 2, 3]), 1, "SAME")
    y = tf.nn.relu(tf.matmul(tf.reshape(y, [4, 12]), tf.ones([12, 2])))
    double = tf.matmul(tf.cast(y, tf.float64), tf.ones([2, 2], tf.float64))
    whole = tf.matmul(tf.cast(y, tf.int32), tf.ones([2, 2], tf.int32))
    feed = {x: np.ones(x.shape)}
    count = graph_rewrite.count_float16(session, [double, whole], feed)
    assert (count.products, count.convolutions) == ((1, 2), (1, 1))
    assert 0 < count.others[0] <= count.others[1]
    text = f"2 of 3 products and convolutions, {count.casts} casts"
    assert str(count) == text and count.casts >= 2


# What is lowered -------------------------------------------------------------

_Y = np.eye(4, dtype="float32")[np.arange(16) % 4]
_LOSSES = {
  # Lowered itself: the seed of its gradient is a number of float16.
  "product": lambda y: tf.reshape(tf.matmul(y[:1], _Y[:1], False, True), []),
  "sum": lambda y: tf.reduce_sum(y) / 8.0,
  "log-softmax": lambda y: -tf.reduce_sum(tf.nn.log_softmax(y) * _Y) / 16.0,
  "squares": lambda y: tf.reduce_mean(tf.square(y - _Y)),
}
_RULE = 1.0, 6, 2.0**8
_STEPS = 24


def two_layers(mode, make, loss):
  def loss_of(x, weights):
    w1, b1, w2 = weights
    return loss(tf.matmul(tf.nn.relu(tf.matmul(x[:16, :8], w1) + b1), w2))

  make = functools.partial(make, *_RULE)
  shapes = (8, 8), (8,), (8, 4)
  return half_precision.Network(mode, make, None, shapes, loss_of)


def run_watched(net):
  """Takes a step; returns the graphs that TensorFlow executes."""
  if net.graph is None:
    return half_precision.graphs_of(net.step)
  options = tf1.RunOptions(output_partition_graphs=True)
  metadata = tf1.RunMetadata()
  with net.graph.as_default():  # The hook's ops are the package's, too.
    monitoring.LossScaleHook(net.opt).run(
      net.session, net.fetches, None, options, metadata
    )
  return metadata.partition_graphs


def list_rows(net, scale):
  """Trains from a loss scale; returns weights and scale after each step."""
  net.start(scale)
  rows = [net.read()]
  for _ in range(_STEPS):
    net.train(getattr(net.opt, "steps", 1))
    rows.append(net.read())
  return rows


def check(rows):
  """Checks that steps which are not skipped train."""
  good = 0
  for before, after in itertools.pairwise(rows):
    is_skipped = after[-1] < before[-1]
    for old, new in zip(before[:-1], after[:-1]):
      assert is_skipped == np.array_equal(old, new)
    good += not is_skipped
  assert rows[-1][-1] < 2.0**40
  assert good > _STEPS / 4


@pytest.mark.parametrize("mode", [*helpers.GRAPH_MODES, "function"])
@pytest.mark.parametrize("api", _MAKERS)
def test_nothing_of_the_package_is_lowered(mode, api, honored):
  of_model = re.compile("(.*model(_1)?|gradients|gradient_tape)/")
  for loss in _LOSSES.values():
    net = two_layers(mode, _MAKERS[api], loss)
    lowered = half_precision.list_lowered(run_watched(net))
    assert "MatMul" in str(lowered.values())
    assert not [name for name in lowered if not of_model.match(name)]
    theirs = two_layers(mode, own, loss) if api == "compat" else None
    for scale in (2.0**15, 2.0**17, 2.0**32, 2.0**126):
      rows = list_rows(net, scale)
      check(rows)
      if theirs:
        assert_equal = np.testing.assert_array_equal
        tf.nest.map_structure(assert_equal, rows, list_rows(theirs, scale))


def test_bounds_of_a_loss_scale_are_not_lowered():
  """Multiplies a loss by a loss scale that has bounds, as a program may."""
  graph_rewrite.turn_on()
  with tf.Graph().as_default(), tf1.Session() as session:
    weight = tf1.Variable([[0.5]] * 8)
    x = np.random.default_rng(0).normal(size=(16, 8)).astype("float32")
    scale = policies.GrowthBackoff(2.0**17, max_loss_scale=2.0**30)()
    loss = _LOSSES["product"](tf.matmul(x, tf.tile(weight, [1, 4])))
    (grad,) = tf.gradients(loss * scale, weight)
    session.run(tf1.global_variables_initializer())
    options = tf1.RunOptions(output_partition_graphs=True)
    metadata = tf1.RunMetadata()
    found = session.run(grad / scale, None, options, metadata)
  lowered = half_precision.list_lowered(metadata.partition_graphs)
  assert lowered and not {"Maximum", "Minimum"} & {*lowered.values()}
  # As with TensorFlow's own loss scale, and not 0.
  assert not np.isfinite(found).any()

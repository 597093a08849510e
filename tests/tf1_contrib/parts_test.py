# SPDX-License-Identifier: Apache-2.0
"""Tests the package's pieces of `tf.contrib`.

`values_test.py` compares their values with those of TensorFlow 1.15.5.
"""

import helpers
import numpy as np
import processes
import pytest
import tensorflow.compat.v1 as tf

from tf1_contrib import buckets
from tf1_contrib import distribute
from tf1_contrib import layers
from tf1_contrib import learn
from tf1_contrib import legacy_seq2seq
from tf1_contrib import opt
from tf1_contrib import private
from tf1_contrib import seq2seq
from tf1_contrib import tfprof
from tf1_contrib import training
from tf1_contrib.training import HParams
from tf1_contrib.training import parse_values
import tf_compat_lossscale as tfl


@pytest.fixture
def session():
  with tf.Graph().as_default(), tf.Session() as session:
    yield session


def test_monitors_that_are_no_hooks():
  hook = tf.train.StopAtStepHook(last_step=3)
  assert learn.replace_monitors_with_hooks((hook,), None) == [hook]
  with pytest.raises(TypeError, match="gone: give a hook"):
    learn.replace_monitors_with_hooks([hook, 7], None)


@pytest.mark.any_release
@pytest.mark.parametrize(
  ("text", "message"),
  [
    ("a=x", "'a' is of type int, but got 'x'"),
    ("a=1,a=2", "'a' is set twice"),
    ("a=1,a[0]=2", "'a' is set twice"),
    ("a[0]=[1]", "is one element"),
    ("b=1", "there are a, c"),
    ("=1", "cannot be read"),
    ("a[x]=1", "cannot be read"),
    ("a=[1", "cannot be read"),
    ("c=maybe", "'c' is of type bool"),
  ],
)
def test_parse_values_refuses(text, message):
  with pytest.raises(ValueError, match=message):
    parse_values(text, {"a": int, "c": bool})


@pytest.mark.any_release
@pytest.mark.parametrize(
  ("arguments", "message"),
  [
    ({"tensors": []}, r"tensors=\[\]"),
    ({"num_buckets": 0}, "num_buckets=0"),
    ({"batch_size": [1, 2, 3]}, r"batch_size=\[1, 2, 3\] for 2 buckets"),
    ({"bucket_capacities": [4]}, r"bucket_capacities=\[4\] for 2 buckets"),
    ({"shapes": [[None]]}, "dynamic_pad=True"),
  ],
)
def test_bucket_refuses(arguments, message, session):
  values = {"which_bucket": 0, "batch_size": 2, "num_buckets": 2, **arguments}
  with pytest.raises(ValueError, match=message):
    buckets.bucket(**{"tensors": [tf.constant([1])], **values})


@pytest.mark.any_release
@pytest.mark.parametrize(
  ("boundaries", "error", "message"),
  [
    ([3, 3], ValueError, r"\[3, 3\]: give integers that increase"),
    ([], ValueError, r"\[\]: give integers that increase"),
    ([1.5], TypeError, r"\[1.5\]: give a list of integers"),
    (7, TypeError, "bucket_boundaries=7: give a list"),
  ],
)
def test_bucket_by_sequence_length_refuses(boundaries, error, message):
  with pytest.raises(error, match=message):
    buckets.bucket_by_sequence_length(1, [tf.constant(1)], 2, boundaries)


@pytest.mark.any_release
def test_hparams():
  hparams = HParams(a=1, b=[1.0], c=None, d="x")
  assert hparams.parse("a=2,b=[3,4]") is hparams
  assert hparams.values() == {"a": 2, "b": [3.0, 4.0], "c": None, "d": "x"}
  assert str(HParams(a=1, d="x")) == "a=1,d=x"
  assert repr(HParams(d="x", a=1)) == "HParams([('a', 1), ('d', 'x')])"
  assert hparams.parse_json('{"d": "y"}').d == "y"
  hparams.set_hparam("b", [1])
  assert hparams.b == [1.0] and type(hparams.b[0]) is float
  hparams.del_hparam("b")
  assert "b" not in hparams and hparams.get("b", 3) == 3
  for call, error in (
    (lambda: hparams.add_hparam("a", 1), ValueError),
    (lambda: hparams.add_hparam("parse", 1), ValueError),
    (lambda: hparams.add_hparam("e", []), ValueError),
    (lambda: hparams.set_hparam("a", 1.5), ValueError),
    (lambda: hparams.set_hparam("a", True), ValueError),
    (lambda: hparams.set_hparam("a", [1]), ValueError),
    (lambda: hparams.set_hparam("no", 1), KeyError),
    (lambda: hparams.get("a", "text"), ValueError),
    (lambda: HParams(b"proto"), ValueError),
  ):
    with pytest.raises(error):
      call()


# As on 1.15.5: it is told nothing of the size of a resource variable.
@pytest.mark.parametrize(
  ("resource", "servers"), [(False, "0111"), (True, "0101")]
)
def test_variables_go_to_the_server_with_the_least_load(
  resource, servers, session
):
  strategy = training.GreedyLoadBalancingStrategy(2, training.byte_size_load_fn)
  setter = tf.train.replica_device_setter(ps_tasks=2, ps_strategy=strategy)
  with tf.device(setter):
    sizes = (3, 1, 1, 2)
    made = [
      tf.get_variable(f"v{i}", [n], use_resource=resource)
      for i, n in enumerate(sizes)
    ]
  assert "".join(v.device[-1] for v in made) == servers
  shape_unknown = tf.placeholder(tf.float32).op
  for op, message in (
    (shape_unknown, "not fully defined"),
    (tf.unstack([1, 2])[0].op, "one output, not 2"),
  ):
    with pytest.raises(ValueError, match=message):
      training.byte_size_load_fn(op)


def test_embeddings(session):
  ids = tf.constant([[1, 2, 0], [3, 3, 0]])
  fill = tf.constant_initializer(np.arange(8).reshape(4, 2))
  same = [
    layers.embed_sequence(
      ids, 4, 2, unique, fill, scope="seq", reuse=unique or None
    )
    for unique in (False, True)
  ]
  session.run(tf.global_variables_initializer())
  first, second = session.run(same)
  assert first.shape == (2, 3, 2) and (first == second).all()
  names = [v.op.name for v in tf.get_collection("model_variables")]
  assert names == ["seq/embeddings"]


@pytest.mark.parametrize("resource", [False, True])
def test_only_chosen_variables_decay(resource, session):
  x, y = (
    tf.get_variable(name, initializer=1.0, use_resource=resource)
    for name in "xy"
  )
  momentum = opt.extend_with_decoupled_weight_decay(tf.train.MomentumOptimizer)
  optimizer = momentum(0.5, 0.0, 0.9)
  gradients = optimizer.compute_gradients(x + y)
  step = optimizer.apply_gradients(gradients, decay_var_list=[x])
  session.run(tf.global_variables_initializer())
  session.run(step)
  assert session.run([x, y]) == [0.5, 1.0]


def test_moving_averages_and_clipped_gradients(session):
  w = tf.get_variable("w", initializer=[3.0, 4.0])
  average = opt.MovingAverageOptimizer(tf.train.GradientDescentOptimizer(0.0))
  with pytest.raises(RuntimeError, match="before minimize"):
    average.swapping_saver()
  average.minimize(tf.reduce_sum(w))
  with pytest.raises(ValueError, match="not among the variables"):
    average.swapping_saver([w])
  clipped, norm = opt.clip_gradients_by_global_norm([(w, w), (None, w)], 1.0)
  session.run(tf.global_variables_initializer())
  assert session.run(norm) == 5 and clipped[1][0] is None
  np.testing.assert_allclose(session.run(clipped[0][0]), [0.6, 0.8], 1e-6)


def train(make, mode):
  """Returns weights after three steps, of which the second is skipped."""
  strategy = tf.distribute.get_strategy()
  if mode == "replicas":
    strategy = helpers.two_replicas()
  with helpers.mode_scope(mode) as graph, strategy.scope():
    table = tf.Variable([[1.0], [2.0], [3.0]], use_resource=True)
    w = tf.Variable([1.0, -2.0], use_resource=True)
    optimizer = tfl.MixedPrecisionLossScaleOptimizer(make(0.1, 0.8), "dynamic")

    def minimize(factor):
      def compute_loss():
        rows = tf.gather(table, [2, 0, 2]) ** 2
        loss = tf.reduce_sum(rows) + tf.reduce_sum(w**2)
        return factor * loss / strategy.num_replicas_in_sync

      return optimizer.minimize(
        compute_loss() if graph else compute_loss, var_list=[table, w]
      )

    def step(factor):
      strategy.run(minimize, (factor,))

    step = step if mode == "eager" else tf.function(step)
    factors = 1.0, np.inf, 2.0
    if graph is None:
      for factor in factors:
        step(tf.constant(factor))
      return repr([table.numpy(), w.numpy()])
    factor = tf.placeholder(tf.float32, [])
    op = minimize(factor)
    with tf.Session() as session:
      session.run(tf.global_variables_initializer())
      for value in factors:
        session.run(op, {factor: value})
      return repr(session.run([table, w]))


@pytest.mark.parametrize("make", [opt.NadamOptimizer, opt.AdaMaxOptimizer])
def test_steps_under_a_loss_scale_are_the_same_in_all_modes(make):
  assert len({train(make, mode) for mode in (*helpers.MODES, "replicas")}) == 1


def test_losses_of_lists_need_one_length():
  with pytest.raises(ValueError, match=r"one length.* 2, 1 and 1"):
    legacy_seq2seq.sequence_loss([[[0.0]]] * 2, [[0]], [[1.0]])


def test_sequence_loss_needs_one_way():
  with pytest.raises(ValueError, match="average or sum"):
    seq2seq.sequence_loss(None, None, None, sum_over_batch=True)


def test_model_analysis():
  with tf.Graph().as_default() as graph:
    tf.get_variable("w", [3, 4])
    found = tfprof.print_model_analysis(graph)
  assert found.total_parameters == 12


def test_strategies_refuse_what_nothing_does_today():
  with pytest.raises(ValueError, match="shard"):
    distribute.MirroredStrategy(auto_shard_dataset=True)


def test_shapes():
  shapes = private.scalar(), private.vector(2), private.matrix(None, 3)
  assert [s.as_list() for s in shapes] == [[], [2], [None, 3]]
  assert private.RegisterShape("Op")(len) is len


@pytest.mark.skipif(not helpers.KERAS_2, reason="tf.keras is Keras 2 here")
def test_cells_without_keras_2_say_what_to_do():
  """Checks the error of a piece that is built on Keras 2, on Keras 3."""
  code = """
import tf_compat_lossscale as tfl
tfl.install()
import tensorflow as tf
try:
  tf.contrib.rnn.GRUCell
except AttributeError as error:
  print(error)
"""
  (line,) = processes.run_forked("-c", code).splitlines()
  assert "Keras 2" in line and "--keras2" in line

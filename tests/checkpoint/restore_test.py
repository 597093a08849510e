# SPDX-License-Identifier: Apache-2.0
"""Tests restores into models that differ from the saved model."""

import pathlib

import helpers
import numpy as np
import pytest
import saved_graphs
from saved_graphs import adam_on
from saved_graphs import dynamic
from saved_graphs import save
from saved_graphs import save_tensors
from saved_graphs import variable
import tensorflow as tf

import tf_compat_lossscale as tfl
from tf_compat_lossscale import checkpoint

tf1 = tf.compat.v1

path = saved_graphs.path


def test_variables_that_are_not_there(path):
  with tf.Graph().as_default(), tf1.Session() as session:
    kernel = variable("dense/kernel", [5, 5])
    variable("dense/kernels", [1, 1])
    scale = dynamic(2.0)
    session.run(tf1.global_variables_initializer())
    with pytest.raises(checkpoint.CheckpointError) as error:
      checkpoint.restore(session, path)
    message = str(error.value)
    assert "dense/kernels (nearest: dense/kernel" in message
    assert "nothing was restored" in message and "\n" not in message
    assert session.run(kernel).tolist() == [5, 5]
    assert session.run(scale()) == 2.0
    for i in range(39):
      variable(f"layer{i}/w", [1.0])
    with pytest.raises(checkpoint.CheckpointError) as error:
      checkpoint.restore(session, path)
  assert "is not in it; and 20 more (mapping={here: t" in str(error.value)


def test_the_nearest_name_of_that_shape(tmp_path):
  values = {"dense/kernels": [1.0], "dense/weights": [[1.0, 2.0]]}
  path = save_tensors(tmp_path, values)
  with tf.Graph().as_default(), tf1.Session() as session:
    variable("dense/kernel", [[0.0, 0.0]])
    with pytest.raises(checkpoint.CheckpointError, match="nearest: dense/wei"):
      checkpoint.restore(session, path)


@pytest.mark.parametrize(
  ("value", "what"), [([[1.0, 2.0]], "[1, 2]"), ([1.0, 2.0, 3.0], "[3]")]
)
def test_another_shape(path, value, what):
  with tf.Graph().as_default(), tf1.Session() as session:
    variable("dense/kernel", value)
    with pytest.raises(checkpoint.CheckpointError) as error:
      checkpoint.restore(session, path)
    assert f"dense/kernel is float32 {what} but float32 [2]" in str(error.value)


def test_the_report(path):
  with tf.Graph().as_default(), tf1.Session() as session:
    variable("dense/kernel", [5, 5])
    report = checkpoint.restore(session, path)
    for kwargs, why in (
      ({"mapping": {"dense/kernel": None}}, "restored: it is mapped to None"),
      ({"variables": []}, "restored: no variables were given"),
    ):
      with pytest.raises(checkpoint.CheckpointError, match=why):
        checkpoint.restore(session, path, **kwargs)
  assert report.restored == {"dense/kernel": "dense/kernel"}
  assert report.unused == ("current_loss_scale", "good_steps")
  assert "1 restored" in str(report) and "good_steps unused" in str(report)


def test_another_optimizer(tmp_path):
  """Checks restores of weights alone, and of all but the optimizer's."""

  def step():
    tf1.train.get_or_create_global_step(tf1.get_default_graph())

  def momentum(opt, i):
    del opt, i
    inner = tf1.train.MomentumOptimizer(1.0, 0.9)
    return tfl.MixedPrecisionLossScaleOptimizer(inner, dynamic(2.0))

  path = save(tmp_path, lambda: (adam_on(["net"]), step()))
  state = {"net/current_loss_scale", "net/good_steps"}
  with tf.Graph().as_default(), tf1.Session() as session:
    adam_on(["net"], what=momentum)
    step()
    with pytest.raises(checkpoint.CheckpointError, match="Momentum"):
      checkpoint.restore(session, path)
    (scale,) = (v for v in tf1.global_variables() if "loss_s" in v.op.name)
    for what, value, initialized in (
      ("all_but_optimizer", 8.0, {"net/net/w/Momentum"}),
      ("weights", 2.0, {"net/net/w/Momentum", "global_step"} | state),
    ):
      report = checkpoint.restore(session, path, what=what)
      assert set(report.initialized) == initialized
      assert not session.run(tf1.report_uninitialized_variables()).size
      assert session.run(scale) == value
    with pytest.raises(ValueError, match="what must be 'all', 'weights' or"):
      checkpoint.restore(session, path, what="some")


def test_an_initial_value_that_fails(path):
  """Checks that nothing is restored then, and the one that needs others."""
  with tf.Graph().as_default(), tf1.Session() as session:
    kernel = variable("dense/kernel", [5, 5])
    double = tf1.Variable(kernel.read_value() * 2, name="double")
    session.run(kernel.initializer)
    report = checkpoint.restore(session, path, missing="initialize")
    assert list(report.initialized) == ["double"]
    assert session.run(double).tolist() == [2, 4]
    session.run(kernel.assign([5, 5]))
    wrong = tf1.placeholder(tf.float32, [2])
    tf1.Variable(tf.debugging.check_numerics(wrong, "no"), name="wrong")
    with pytest.raises(
      checkpoint.CheckpointError, match=r"nothing was restored.*feed a value"
    ):
      checkpoint.restore(session, path, missing="initialize")
    assert session.run(kernel).tolist() == [5, 5]


def test_partitioned_variables(tmp_path):
  def build():
    with tf1.variable_scope(
      "", partitioner=tf1.fixed_size_partitioner(3), reuse=tf1.AUTO_REUSE
    ):
      embedding = tf1.get_variable(
        "embedding", [7, 2], initializer=tf1.random_uniform_initializer()
      )
    opt = tfl.MixedPrecisionLossScaleOptimizer(
      tf1.train.AdamOptimizer(0.1), dynamic()
    )
    opt.minimize(tf.reduce_sum(embedding.as_tensor()))
    return embedding

  with helpers.control_flow(False):
    path = save(tmp_path, build)
  value = tf.train.load_checkpoint(path).get_tensor("embedding")
  with helpers.control_flow(True), tf.Graph().as_default():
    embedding = build()
    with tf1.Session() as session:
      checkpoint.restore(session, path)
      np.testing.assert_array_equal(session.run(embedding.as_tensor()), value)
  assert checkpoint.describe(path).keys["embedding"].shape == (7, 2)
  for to in ("saver-v2", "weights", "npz"):
    copy = str(tmp_path / f"copy.{to}")
    checkpoint.convert(path, copy, to)
    if to == "npz":
      found = np.load(copy)["embedding"]
    else:
      found = tf.train.load_checkpoint(copy).get_tensor("embedding")
    np.testing.assert_array_equal(found, value)


def test_variables_with_one_initial_value(tmp_path):
  def build():
    initial = tf.ones([2])
    return [tf1.Variable(initial, name=name) for name in "abc"]

  with tf.Graph().as_default(), tf1.Session() as session:
    variables = build()
    for i, v in enumerate(variables):
      session.run(v.initializer, {v.initializer.inputs[1]: [i, i]})
    path = tf1.train.Saver().save(session, str(tmp_path / "model"))
  with tf.Graph().as_default(), tf1.Session() as session:
    variables = build()
    checkpoint.restore(session, path)
    assert [v[0] for v in session.run(variables)] == [0, 1, 2]


def test_names_given(path):
  with tf.Graph().as_default(), tf1.Session() as session:
    kernel = variable("layer/w", [5, 5])
    variable("unrelated", [0])
    checkpoint.restore(session, path, variables={"dense/kernel": kernel})
    assert session.run(kernel).tolist() == [1, 2]
    with pytest.raises(ValueError, match="Two variables are called"):
      checkpoint.restore(session, path, variables=[kernel, kernel])


@pytest.mark.any_release
def test_one_tensor_for_two_variables(path):
  """Checks a target network, and an average, that start from one weight."""
  with tf.Graph().as_default(), tf1.Session() as session:
    both = [variable(name, [5, 5]) for name in ("dense/kernel", "target/w")]
    report = checkpoint.restore(
      session, path, mapping={"target/w": "dense/kernel"}
    )
    assert [v.tolist() for v in session.run(both)] == [[1, 2], [1, 2]]
  assert report.bridged == {"target/w": "dense/kernel"}
  assert report.restored == {"dense/kernel": "dense/kernel"}


@pytest.mark.any_release
def test_weights_of_another_dtype(tmp_path):
  def build(dtype, value=(1.0, 65504.0)):
    return tf1.get_variable("w", initializer=np.array(value, dtype))

  path = save(tmp_path, lambda: build("float16"))
  with tf.Graph().as_default(), tf1.Session() as session:
    w = build("float32", (5.0, 5.0))
    with pytest.raises(checkpoint.CheckpointError, match="cast=True"):
      checkpoint.restore(session, path)
    report = checkpoint.restore(session, path, cast=True)
    assert session.run(w).tolist() == [1, 65504]
    assert "float16" in report.proofs["w"]
  path = save(tmp_path, lambda: build("float32"), "back")
  large = save(tmp_path, lambda: build("float32", (1.0, 1e6)), "large")
  with tf.Graph().as_default(), tf1.Session() as session:
    w = build("float16", (5.0, 5.0))
    session.run(w.initializer)
    with pytest.raises(checkpoint.CheckpointError, match="cannot hold"):
      checkpoint.restore(session, large, cast=True)
    assert session.run(w).tolist() == [5, 5]
    checkpoint.restore(session, path, cast=True)
    assert session.run(w).tolist() == [1, 65504]
  path = save(tmp_path, lambda: tf1.get_variable("w", initializer=[1, 2]), "i")
  with tf.Graph().as_default(), tf1.Session() as session:
    build("float32")
    with pytest.raises(checkpoint.CheckpointError, match="is float32"):
      checkpoint.restore(session, path, cast=True)


@pytest.mark.any_release
def test_objects_of_other_kinds(path):
  """Checks lists, tuples and dicts, and what holds no variable."""

  def make():
    return tf.Variable([5.0, 5.0], name="dense/kernel")

  for wrap in (
    lambda v: [v],
    lambda v: {"a": (v,)},
    lambda v: {"a": {"b": [v]}},
    lambda v: {"w": [v, tf.Module()]},
  ):
    kernel = make()
    report = checkpoint.restore(None, path, wrap(kernel))
    assert kernel.numpy().tolist() == [1, 2] and len(report.restored) == 1
  scale = dynamic(2.0)
  report = checkpoint.restore(None, path, {"w": make(), "scale": scale})
  assert float(scale()) == 64.0 and len(report.restored) == 3
  with pytest.raises(ValueError, match="needs the objects"):
    checkpoint.restore(None, path)
  saved = tf.train.Checkpoint(w=make())
  by_object = saved.save(f"{path}-by-object")
  for wrong in ({"a": 1}, "x", 5, {}, [], {"a": tf.Module()}, {"a": "x"}):
    for each in (path, by_object):
      with pytest.raises(ValueError, match="objects"):
        checkpoint.restore(None, each, wrong)
  other = tf.Variable(1.0, name="other")
  with pytest.raises(checkpoint.CheckpointError, match="other"):
    checkpoint.restore(None, path, {"w": other}, missing="initialize")


def test_damaged_data_is_not_assigned(path):
  data = f"{path}.data-00000-of-00001"
  content = bytearray(pathlib.Path(data).read_bytes())
  content[1] ^= 1
  pathlib.Path(data).write_bytes(content)
  with tf.Graph().as_default(), tf1.Session() as session:
    kernel = variable("dense/kernel", [5, 5])
    scale = dynamic(2.0)
    session.run(tf1.global_variables_initializer())
    with pytest.raises(checkpoint.CheckpointError):
      checkpoint.restore(session, path)
    assert session.run(kernel).tolist() == [5, 5]
    assert session.run(scale()) == 2.0


@pytest.mark.any_release
def test_optimizers_in_another_order(tmp_path):
  """Checks that equal names of other optimizers show in the powers' values."""

  def build(betas):
    w = variable("w", [1.0, 2.0])
    for beta in betas:
      tf1.train.AdamOptimizer(0.1, beta1=beta).minimize(w * w, var_list=[w])

  betas = (0.5, 0.9)
  path = save(tmp_path, lambda: build(betas))
  with tf.Graph().as_default(), tf1.Session() as session:
    build(betas)
    checkpoint.restore(session, path)
  with tf.Graph().as_default(), tf1.Session() as session:
    build(betas[::-1])
    session.run([v.initializer for v in tf1.global_variables()])
    before = session.run(tf1.global_variables())
    for saver in (checkpoint.restore, checkpoint.Saver().restore):
      with pytest.raises(
        checkpoint.CheckpointError,
        match=r"are another optimizer's.*mapping=\{'beta1_power'",
      ):
        saver(session, path)
    after = session.run(tf1.global_variables())
    assert all(np.array_equal(*pair) for pair in zip(before, after))
    # The caller may know better: the program has other betas now.
    mapping = {n: n for n in ("beta1_power", "beta1_power_1")}
    checkpoint.restore(session, path, mapping=mapping)


@pytest.mark.any_release
@pytest.mark.parametrize("steps", [1, 10, 900, 7000])
def test_powers_of_other_betas(steps, tmp_path):
  """Checks powers as training computes them, against this program's betas."""

  def power_of(beta):
    return np.cumprod(np.full(steps + 1, beta, np.float32))[-1]

  def restore(here, there):
    values = dict.fromkeys(("w", "w/Adam", "w/Adam_1"), np.ones(2, "f"))
    for number, value in enumerate(there, 1):
      values[f"beta{number}_power"] = np.float32(value)
    path = save_tensors(tmp_path, values)
    with tf.Graph().as_default(), tf1.Session() as session:
      w = variable("w", [1.0, 2.0])
      tf1.train.AdamOptimizer(0.1, *here).minimize(w * w, var_list=[w])
      checkpoint.restore(session, path)

  for betas in ((0.5, 0.999), (0.9, 0.999), (0.9, 0.98), (0.5, 0.9999)):
    restore(betas, map(power_of, betas))
  restore((0.9, 0.999), (1000.0, 1001.0))  # No optimizer's.
  restore((0.0, 0.999), (0.0, power_of(0.999)))
  if steps < 900:  # Later, the power of 0.9 is nearly 0.
    for betas in ((0.5, 0.999), (0.9, 0.9999), (0.9, 0.98)):
      with pytest.raises(checkpoint.CheckpointError, match="another optimizer"):
        restore(betas, (power_of(0.9), power_of(0.999)))


def test_an_initial_value_made_of_a_restored_variable_on_replicas(tmp_path):
  """Checks that the value waits for the restore, also of several copies."""

  def build(has_more):
    strategy = tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"])
    with strategy.scope():
      v = tf1.get_variable("v", initializer=[1.0, 2.0], use_resource=True)
      copies = strategy.experimental_local_results(v)
    if has_more:
      value = copies[0].read_value() * 2
      tf1.get_variable("x", initializer=value, use_resource=True)
    return strategy

  with tf.Graph().as_default(), tf1.Session() as session:
    build(False)
    session.run(tf1.global_variables_initializer())
    path = tf1.train.Saver().save(session, str(tmp_path / "model"))
  with tf.Graph().as_default(), tf1.Session() as session:
    with build(True).scope():
      report = checkpoint.restore(session, path, missing="initialize")
    assert set(report.initialized) == {"x"}
    assert session.run("x/Read/ReadVariableOp:0").tolist() == [2, 4]

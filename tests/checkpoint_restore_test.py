# SPDX-License-Identifier: Apache-2.0
"""Checkpoints restored into models that are not quite those that saved them."""

import functools
import json
import os
import pathlib

import checkpoint_runner
import helpers
import numpy as np
import pytest
import tensorflow as tf

import tf_compat_lossscale as tfl
from tf_compat_lossscale import checkpoint

tf1 = tf.compat.v1
_GOLDENS = sorted(
  str(path.parent.relative_to(helpers.GOLDENS))
  for case in ("session", "contrib")
  for path in helpers.GOLDENS.glob(f"tf-*/{case}_*/expected.json")
)
_IN_BOTH = {
  "tf-1.15.5/contrib_exponential",
  "tf-1.15.5/session_dynamic_adam",
  "tf-2.8.4/session_v2_behavior_adam",
}
_RUNNER = str(helpers.ROOT / "tests" / "checkpoint_runner.py")
_STATE = {
  "compat.v1": {"current_loss_scale", "good_steps"},
  "contrib": {"loss_scale", "good_steps", "bad_steps"},
}


def last_parts(names):
  """Returns names without their scopes."""
  return {name.split("/")[-1] for name in names}


def check_rows(way, rows, expected):
  """Checks the values after a restore, and those of each step after it."""
  has_state = expected["kind"] != "fixed"
  expected_rows = expected["rows"][expected["steps_before"] - 1 :]
  expected_rows = expected_rows[: checkpoint_runner.STEPS + 1]
  assert len(rows) == len(expected_rows) == checkpoint_runner.STEPS + 1
  if "other_kind" in way or ("other_api" in way and not has_state):
    # The two differ in what becomes of gradients that are not finite.
    ends = [i for i, row in enumerate(expected_rows) if row["poisoned"]]
    if not np.isfinite(expected_rows[0]["w"]).all():
      ends.insert(0, 1)
    expected_rows = expected_rows[: ends[0]]
  has_scale = not has_state or not way.startswith(("as_other", "from_fp32"))
  for row, expected_row in zip(rows, expected_rows):
    if has_scale and "as_other" not in way:
      for key in ("loss_scale", "good_steps", "bad_steps"):
        assert row.get(key) == expected_row.get(key), (key, expected_row["i"])
    assert row["global_step"] == expected_row["global_step"]
    for key in ("w", "b"):
      np.testing.assert_allclose(
        row[key], expected_row[key], rtol=2e-5, atol=2e-7
      )
  if "from_fp32" in way and has_state:
    assert rows[0]["loss_scale"] == 3.0 and rows[0]["good_steps"] == 0
  if way.startswith("as_other_api") and has_state:
    for key in ("loss_scale", "good_steps"):
      assert rows[0][key] == expected_rows[0][key]


def check_report(way, report, expected):
  """Checks which variables were bridged and initialized."""
  compat = expected["api"].startswith("compat")
  has_state = expected["kind"] != "fixed"
  state = _STATE["compat.v1" if compat else "contrib"]
  is_new = "from_fp32" in way if has_state else "other_kind" in way
  assert last_parts(report["initialized"]) == (state if is_new else set())
  assert {"w", "b", "global_step"} <= last_parts(report["restored"])
  if way.startswith("as_other_api") and has_state:
    other = _STATE["contrib" if compat else "compat.v1"]
    assert other <= last_parts(report["bridged"])


def expected_of(golden):
  """Returns what an old release did, by the golden's path."""
  path = helpers.GOLDENS / golden / "expected.json"
  return json.loads(path.read_text())


def groups():
  """Returns (behavior, goldens): what one process restores.

  Goldens go into the behavior that they were not saved in; a few go into both.
  The releases between the first and the last one differ in who wrote the files,
  which is for the newest TensorFlow alone to read.
  """
  found = {}
  for golden in _GOLDENS:
    own = "v2" if expected_of(golden).get("v2_behavior") else "v1"
    behaviors = {"v1", "v2"} if golden in _IN_BOTH else {"v1", "v2"} - {own}
    is_main = golden in checkpoint_runner.IN_EVERY_WAY | _IN_BOTH
    for behavior in sorted(behaviors):  # All workers need one order.
      found.setdefault((behavior, is_main), []).append(golden)
  return found


def cases():
  """Returns the cases: a golden, and what is restored with it."""
  return [
    pytest.param(
      golden,
      behavior,
      goldens,
      marks=[] if is_main else [pytest.mark.any_release],
      id=f"{golden}-{behavior}",
    )
    for (behavior, is_main), goldens in groups().items()
    for golden in goldens
  ]


@pytest.mark.parametrize(("golden", "behavior", "goldens"), cases())
def test_trains_on_as_recorded(golden, behavior, goldens, tmp_path_factory):
  paths = [str(helpers.GOLDENS / name) for name in goldens]
  output = helpers.run_once(
    tmp_path_factory, _RUNNER, behavior, *paths, timeout=600
  )
  results = helpers.parse_json(output)[str(helpers.GOLDENS / golden)]
  expected = expected_of(golden)
  is_full = golden in checkpoint_runner.IN_EVERY_WAY
  assert len(results) >= (10 if is_full else 4), list(results)
  for way, result in results.items():
    assert not isinstance(result, str), f"{way}: {result}"
    rows, report = result
    try:
      check_rows(way, rows, expected)
      if report:  # A Saver has none if all names are the same.
        check_report(way, report, expected)
      else:
        assert way in ("by_saver", "by_meta_graph")
    except AssertionError as error:
      raise AssertionError(f"{way}: {error}") from error


def variable(name, value, **kwargs):
  return tf1.get_variable(
    name, initializer=np.float32(value), use_resource=True, **kwargs
  )


def save(folder, build, name="model"):
  """Saves what `build` makes, by name; returns the path."""
  with tf.Graph().as_default(), tf1.Session() as session:
    build()
    session.run(tf1.global_variables_initializer())
    return tf1.train.Saver().save(session, str(folder / name))


@pytest.fixture
def path(tmp_path):
  return save(tmp_path, lambda: (variable("dense/kernel", [1, 2]), dynamic()))


def dynamic(value=64.0):
  return tfl.DynamicLossScale(value)


def test_a_variable_that_is_not_there(path):
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


def test_much_that_is_not_there(path):
  with tf.Graph().as_default(), tf1.Session() as session:
    for i in range(300):
      variable(f"layer{i}/w", [1.0])
    with pytest.raises(checkpoint.CheckpointError) as error:
      checkpoint.restore(session, path)
  assert str(error.value).endswith("is not in it; and 280 more")


@pytest.mark.parametrize(
  ("value", "what"), [([[1.0, 2.0]], "[1, 2]"), ([1.0, 2.0, 3.0], "[3]")]
)
def test_another_shape(path, value, what):
  with tf.Graph().as_default(), tf1.Session() as session:
    variable("dense/kernel", value)
    with pytest.raises(checkpoint.CheckpointError) as error:
      checkpoint.restore(session, path)
    assert f"dense/kernel is float32 {what} but float32 [2]" in str(error.value)


def test_another_dtype(path):
  with tf.Graph().as_default(), tf1.Session() as session:
    tf1.get_variable("dense/kernel", initializer=np.zeros(2, np.float16))
    with pytest.raises(
      checkpoint.CheckpointError, match=r"is float16 \[2\] but"
    ):
      checkpoint.restore(session, path)


def test_the_report(path):
  with tf.Graph().as_default(), tf1.Session() as session:
    variable("dense/kernel", [5, 5])
    report = checkpoint.restore(session, path)
  assert report.restored == {"dense/kernel": "dense/kernel"}
  assert report.unused == ("current_loss_scale", "good_steps")
  assert "1 restored" in str(report) and "good_steps unused" in str(report)


def adam_on(scopes, resource=True, what=None):
  """An Adam with a loss scale in each scope."""
  what = what or (
    lambda opt, i: tfl.MixedPrecisionLossScaleOptimizer(opt, dynamic(2.0**i))
  )
  for i, scope in enumerate(scopes, 3):
    with tf1.variable_scope(scope):
      w = tf1.get_variable("w", [2], use_resource=resource)
      opt = what(tf1.train.AdamOptimizer(0.1, beta1=0.5 + i / 100), i)
      opt.minimize(tf.reduce_sum(w), var_list=[w])


_KINDS = {
  "v1": None,
  "v2": None,
  "contrib": lambda opt, i: tfl.contrib.LossScaleOptimizer(
    opt, tfl.contrib.ExponentialUpdateLossScaleManager(2.0**i, 4)
  ),
  "fp32": lambda opt, i: opt,
}


def build_several(kind, scope):
  """Builds three optimizers of a kind in a scope; '' for none."""
  with tf1.variable_scope(scope):
    adam_on(["gen", "disc", "other"], what=_KINDS[kind])


@pytest.fixture(scope="module")
def saved_several(tmp_path_factory):
  """Checkpoints of three optimizers: (kind, scope) -> path."""
  folder, paths = tmp_path_factory.mktemp("several"), {}
  for kind in _KINDS:
    for scope in ("", "net"):
      build = functools.partial(build_several, kind, scope)
      with helpers.control_flow(kind == "v2"):
        paths[kind, scope] = save(folder, build, f"{kind}{scope}")
  return paths


def check_several(source, target, values, report):
  """Checks that each optimizer has its own powers and its own loss scale."""
  powers = sorted(
    float(value) for name, value in values.items() if "beta1_power" in name
  )
  np.testing.assert_allclose(powers, [0.53, 0.54, 0.55], rtol=1e-6)
  by_scope = {"gen": 0.53, "disc": 0.54, "other": 0.55}
  by_number = {"power": 0.53, "power_1": 0.54, "power_2": 0.55}
  for name in values:
    if "beta1_power" in name:
      scope, _, last = name.replace("net/", "").rpartition("/")
      power = by_scope[scope.split("/")[0]] if scope else by_number[last[6:]]
      assert values[name] == np.float32(power), (name, report)
  scales = {
    name.replace("net/", "").split("/")[0]: value
    for name, value in values.items()
    if name.endswith("loss_scale")
  }
  if target == "fp32":
    assert not scales
  else:
    # An initialized scale has the same value, so the report must say which.
    assert scales == {"gen": 8, "disc": 16, "other": 32}
  if source != "fp32" or target == "fp32":
    assert not report.initialized
  else:
    assert len(report.initialized) == (9 if target == "contrib" else 6)


@pytest.mark.parametrize("scope", ["", "net"])
@pytest.mark.parametrize("target", list(_KINDS))
def test_several_optimizers(scope, target, saved_several):
  """Each gets its own powers, whatever they are called here and there."""
  with helpers.control_flow(target == "v2"), tf.Graph().as_default():
    build_several(target, scope)
    variables = tf1.global_variables()
    clear = [v.assign(tf.ones_like(v) * 7) for v in variables]
    with tf1.Session() as session:
      session.run(tf1.global_variables_initializer())
      for source in _KINDS:
        session.run(clear)
        report = checkpoint.restore(session, saved_several[source, scope])
        values = session.run({v.op.name: v for v in variables})
        check_several(source, target, values, report)


@pytest.mark.parametrize("target", [False, True])
def test_several_optimizers_in_one_scope(target, tmp_path):
  def build():
    for i in range(3):
      w = tf1.get_variable(f"w{i}", [2], use_resource=True)
      opt = tf1.train.AdamOptimizer(0.1, beta1=0.5 + i / 100)
      opt = tfl.MixedPrecisionLossScaleOptimizer(opt, dynamic(2.0 ** (i + 3)))
      opt.minimize(tf.reduce_sum(w), var_list=[w])

  with helpers.control_flow(not target):
    path = save(tmp_path, build)
  with helpers.control_flow(target), tf.Graph().as_default():
    build()
    with tf1.Session() as session:
      checkpoint.restore(session, path)
      got = session.run(
        [v for v in tf1.global_variables() if "beta1_power" in v.op.name]
      )
      scales = session.run(
        [v for v in tf1.global_variables() if "loss_scale" in v.op.name]
      )
  np.testing.assert_allclose(got, [0.5, 0.51, 0.52], rtol=1e-6)
  assert scales == [8, 16, 32]


def test_a_part_of_several_is_not_guessed(tmp_path):
  """With fewer optimizers here than there, which is whose does not show."""
  with helpers.control_flow(False):
    path = save(tmp_path, lambda: adam_on(["a", "b"]))
  with helpers.control_flow(True), tf.Graph().as_default():
    with tf1.variable_scope("c"):
      adam_on(["a"])
    error = pytest.raises(checkpoint.CheckpointError, match="beta1_power")
    with tf1.Session() as session, error:
      checkpoint.restore(session, path)


def test_weights_alone(tmp_path):
  path = save(tmp_path, lambda: (adam_on(["net"]), step()))
  with tf.Graph().as_default(), tf1.Session() as session:
    adam_on(["net"], what=lambda opt, i: tf1.train.MomentumOptimizer(1.0, 0.9))
    tf1.train.get_or_create_global_step()
    report = checkpoint.restore(session, path, what="weights")
    assert list(report.restored) == ["net/w"]
    assert set(report.initialized) == {"net/net/w/Momentum", "global_step"}
    assert not session.run(tf1.report_uninitialized_variables()).size


def step():
  tf1.train.get_or_create_global_step(tf1.get_default_graph())


def test_another_optimizer(tmp_path):
  path = save(tmp_path, lambda: (adam_on(["net"]), step()))

  def momentum(opt, i):
    del opt, i
    inner = tf1.train.MomentumOptimizer(1.0, 0.9)
    return tfl.MixedPrecisionLossScaleOptimizer(inner, dynamic(2.0))

  with tf.Graph().as_default(), tf1.Session() as session:
    adam_on(["net"], what=momentum)
    tf1.train.get_or_create_global_step()
    with pytest.raises(checkpoint.CheckpointError, match="Momentum"):
      checkpoint.restore(session, path)
    report = checkpoint.restore(session, path, what="all_but_optimizer")
    assert set(report.initialized) == {"net/net/w/Momentum"}
    scale = [v for v in tf1.global_variables() if "loss_scale" in v.op.name]
    assert session.run(scale) == [8.0]
    with pytest.raises(ValueError, match="what must be 'all', 'weights' or"):
      checkpoint.restore(session, path, what="some")


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
  copy = str(tmp_path / "copy")
  checkpoint.convert(path, copy, "saver-v2")
  reader = tf.train.load_checkpoint(copy)
  np.testing.assert_array_equal(reader.get_tensor("embedding"), value)


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


def test_eagerly_by_name(path):
  kernel = tf.Variable([5.0, 5.0], name="dense/kernel")
  scale = dynamic(2.0)
  objects = {"kernel": kernel, "scale": scale}
  report = checkpoint.restore(None, path, objects)
  assert kernel.numpy().tolist() == [1, 2] and float(scale()) == 64.0
  assert len(report.restored) == 3
  with pytest.raises(ValueError, match="needs the objects"):
    checkpoint.restore(None, path)


def test_a_keras_file_needs_a_model():
  h5 = helpers.GOLDENS / "tf-2.8.4" / "keras_policy_model" / "model.h5"
  with pytest.raises(checkpoint.CheckpointError, match="load_model"):
    checkpoint.restore(None, h5, {})


def restore_keras_files():
  """In a process of its own: Keras is chosen for a whole process."""
  keras, folder = tf.keras, os.environ["FOLDER"]
  keras.mixed_precision.set_global_policy("mixed_float16")

  def made():
    dense = keras.layers.Dense(3, input_shape=(4,), name="dense")
    model = keras.Sequential([dense])
    adam = getattr(keras.optimizers, "legacy", keras.optimizers).Adam
    if os.environ["GENERATION"] == "3":
      adam = keras.optimizers.Adam
    model.compile(adam(0.01), "mse")
    return model

  def fit(model, epochs):
    data = tf.ones([64, 4]), tf.ones([64, 3])
    model.fit(*data, batch_size=8, epochs=epochs, shuffle=False, verbose=0)
    return model

  trained = fit(made(), 5)
  for name in ("model.h5", "model.keras"):
    if name == "model.keras" and os.environ["GENERATION"] != "3":
      continue  # Which has no state of a legacy optimizer.
    path = os.path.join(folder, name)
    trained.save(path)
    model = fit(made(), 1)
    report = checkpoint.restore(None, path, model)
    assert report.restored
    for ours, theirs in zip(model.get_weights(), trained.get_weights()):
      np.testing.assert_array_equal(ours, theirs)
    steps = int(model.optimizer.iterations)
    if report.unused:  # Keras 3 leaves the optimizer of an HDF5 file aside.
      assert (name, os.environ["GENERATION"]) == ("model.h5", "3")
    else:
      assert steps == int(trained.optimizer.iterations), (name, steps)
  if os.environ["GENERATION"] != "3":
    assert any("loss_scale" in key for key in report.initialized)
  try:
    other = keras.Sequential([keras.layers.Dense(7, input_shape=(4,))])
    checkpoint.restore(None, path, other)
  except checkpoint.CheckpointError:
    pass
  else:
    raise AssertionError("another model")


@pytest.mark.parametrize("generation", ["2", "3"])
def test_keras_files(generation, tmp_path):
  if generation == "3" and helpers.RELEASE < (2, 16):
    pytest.skip("Keras 3 is not TensorFlow's before 2.16")
  legacy = "1" if generation == "2" and helpers.RELEASE > (2, 15) else "0"
  helpers.run_alone(
    restore_keras_files,
    FOLDER=str(tmp_path),
    GENERATION=generation,
    TF_USE_LEGACY_KERAS=legacy,
  )


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


_OPTIMIZERS = {
  "plain": lambda: tf1.train.AdamOptimizer(0.1),
  "dynamic": lambda: tfl.MixedPrecisionLossScaleOptimizer(
    tf1.train.AdamOptimizer(0.1), tfl.DynamicLossScale(8.0, 2)
  ),
  "fixed": lambda: tfl.MixedPrecisionLossScaleOptimizer(
    tf1.train.AdamOptimizer(0.1), 4.0
  ),
  "contrib": lambda: tfl.contrib.LossScaleOptimizer(
    tf1.train.AdamOptimizer(0.1),
    tfl.contrib.ExponentialUpdateLossScaleManager(16.0, 2),
  ),
}


def train_eagerly(kind, steps, path=None):
  """Trains eagerly, after a restore if there is a path.

  Returns:
    The checkpoint, the weight and the restore's report.
  """
  w = tf.Variable([1.0, -1.0])
  opt = _OPTIMIZERS[kind]()
  root = tf.train.Checkpoint(optimizer=opt, w=w)
  report = path and checkpoint.restore(None, path, {"optimizer": opt, "w": w})
  for _ in range(steps):
    opt.minimize(lambda: tf.reduce_sum(w * w), var_list=[w])
  return root, w, report


@pytest.fixture(scope="module")
def saved_eagerly(tmp_path_factory):
  """Checkpoints after three steps: kind -> (path, the weight after eight)."""
  folder, saved = tmp_path_factory.mktemp("eagerly"), {}
  for kind in _OPTIMIZERS:
    root, *_ = train_eagerly(kind, 3)
    path = root.save(str(folder / kind))
    _, w, _ = train_eagerly(kind, 8)
    saved[kind] = path, w.numpy()
  return saved


@pytest.mark.parametrize("source", list(_OPTIMIZERS))
@pytest.mark.parametrize("target", list(_OPTIMIZERS))
def test_eagerly_by_object(source, target, saved_eagerly):
  """What is restored fills the slots that the first step creates."""
  path, expected = saved_eagerly[source]
  _, w, report = train_eagerly(target, 5, path)
  np.testing.assert_allclose(w.numpy(), expected, rtol=1e-6)
  dynamics = {"dynamic": 2, "contrib": 3}  # So many variables.
  is_new = target in dynamics and source not in dynamics
  assert len(report.initialized) == (dynamics[target] if is_new else 0)
  # Bad steps are of no use to a DynamicLossScale.
  unused = [key for key in report.unused if "bad_steps" not in key]
  is_unused = any("loss_scale" in key for key in unused)
  assert is_unused == (source in dynamics and target not in dynamics)


def test_by_object_what_is_not_there(tmp_path):
  root, *_ = train_eagerly("dynamic", 1)
  path = root.save(str(tmp_path / "ckpt"))
  w, other = tf.Variable([5.0, 5.0]), tf.Variable(1.0)
  with pytest.raises(checkpoint.CheckpointError, match=r"ww .*nearest: w"):
    checkpoint.restore(None, path, {"w": w, "ww": other})
  assert w.numpy().tolist() == [5, 5]
  checkpoint.restore(None, path, {"w": w})
  assert w.numpy().tolist() != [5, 5]
  with pytest.raises(ValueError, match="by name"):
    checkpoint.restore(None, path, {"w": w}, what="weights")


def test_by_object_of_another_shape(tmp_path):
  w = tf.Variable([1.0, 2.0])
  path = tf.train.Checkpoint(w=w).save(str(tmp_path / "ckpt"))
  for other in (tf.Variable([5.0]), tf.Variable([5.0, 5.0], dtype=tf.float64)):
    with pytest.raises(checkpoint.CheckpointError, match="but float32"):
      checkpoint.restore(None, path, {"w": other})
    assert other.numpy()[0] == 5


@pytest.mark.parametrize("how", ["function", "scaffold", "creator"])
def test_monitored_sessions(how, tmp_path):
  """One name is changed, and a run goes on in the other control flow."""

  def run(v2, steps, session_of):
    with helpers.control_flow(v2), tf.Graph().as_default():
      global_step = tf1.train.get_or_create_global_step()
      w = tf1.get_variable("w", initializer=[3.0, 4.0], use_resource=True)
      opt = tfl.MixedPrecisionLossScaleOptimizer(
        tf1.train.AdamOptimizer(0.1), tfl.DynamicLossScale(8.0, 2)
      )
      train = opt.minimize(tf.reduce_sum(w * w), global_step)
      fetches = [global_step, opt.loss_scale(), w]
      with session_of(str(tmp_path)) as session:
        for _ in range(steps):
          session.run(train)
        return session.run(fetches)

  def plainly(folder):
    return tf1.train.MonitoredTrainingSession(
      checkpoint_dir=folder, save_checkpoint_steps=1, save_checkpoint_secs=None
    )

  def bridging(folder):
    if how == "creator":
      return tf1.train.MonitoredSession(
        tf1.train.ChiefSessionCreator(
          checkpoint.Scaffold(), checkpoint_dir=folder
        )
      )
    make = (
      checkpoint.MonitoredTrainingSession
      if how == "function"
      else functools.partial(
        tf1.train.MonitoredTrainingSession, scaffold=checkpoint.Scaffold()
      )
    )
    return make(checkpoint_dir=folder)

  assert run(False, 3, plainly)[:2] == [3, 16.0]
  with pytest.raises(tf.errors.NotFoundError):
    run(True, 1, plainly)
  steps, scale, w = run(True, 3, bridging)
  assert (steps, scale) == (6, 64.0)
  _, _, expected = run_anew(6)
  np.testing.assert_allclose(w, expected, rtol=1e-6)


def run_anew(steps):
  with tf.Graph().as_default(), tf1.Session() as session:
    global_step = tf1.train.get_or_create_global_step()
    w = tf1.get_variable("w", initializer=[3.0, 4.0], use_resource=True)
    opt = tfl.MixedPrecisionLossScaleOptimizer(
      tf1.train.AdamOptimizer(0.1), tfl.DynamicLossScale(8.0, 2)
    )
    train = opt.minimize(tf.reduce_sum(w * w), global_step)
    session.run(tf1.global_variables_initializer())
    for _ in range(steps):
      session.run(train)
    return session.run([global_step, opt.loss_scale(), w])


def test_a_saver_without_need_of_bridges_is_tensorflows(path):
  with tf.Graph().as_default(), tf1.Session() as session:
    kernel = variable("dense/kernel", [5, 5])
    scale = dynamic(2.0)
    saver = checkpoint.Saver()
    saver.restore(session, path)
    assert saver.last_report is None
    assert session.run(kernel).tolist() == [1, 2]
    assert session.run(scale()) == 64.0
    with pytest.raises(ValueError, match="None"):
      saver.restore(session, None)


def test_a_file_system_that_tensorflow_alone_knows():
  with tf.Graph().as_default(), tf1.Session() as session:
    variable("dense/kernel", [5, 5])
    with pytest.raises((tf.errors.OpError, ValueError), match="ram://"):
      checkpoint.Saver().restore(session, "ram://nothing")


def test_a_saver_of_some_variables(path):
  with tf.Graph().as_default(), tf1.Session() as session:
    kernel = variable("kernel", [5, 5])
    variable("unrelated", [0])
    saver = checkpoint.Saver({"dense/kernel": kernel})
    saver.restore(session, path)
    assert session.run(kernel).tolist() == [1, 2]
    scale = tfl.DynamicLossScale(2.0)
    checkpoint.Saver([*scale._weights.values()]).restore(session, path)
    assert session.run(scale()) == 64.0


def test_a_saver_of_more_than_variables(tmp_path):
  with tf.Graph().as_default(), tf1.Session() as session:
    with helpers.control_flow(False):
      adam_on(["net"])
    session.run(tf1.global_variables_initializer())
    path = tf1.train.Saver().save(session, str(tmp_path / "model"))
  with helpers.control_flow(True), tf.Graph().as_default():
    adam_on(["net"])
    dataset = tf1.data.make_initializable_iterator(tf.data.Dataset.range(3))
    tf1.add_to_collection(
      tf1.GraphKeys.SAVEABLE_OBJECTS,
      tf.data.experimental.make_saveable_from_iterator(dataset),
    )
    error = pytest.raises(checkpoint.CheckpointError, match="Iterator")
    with tf1.Session() as session, error:
      checkpoint.Saver().restore(session, path)


@pytest.mark.parametrize("scope", [None, "imported"])
def test_import_meta_graph(scope):
  """One that TensorFlow itself cannot import."""
  golden = helpers.GOLDENS / "tf-2.4.4" / "session_v2_behavior_adam"
  path = str(golden / "model.ckpt-10")
  with tf.Graph().as_default(), pytest.raises(KeyError):
    tf1.train.import_meta_graph(path + ".meta")
  with tf.Graph().as_default(), tf1.Session() as session:
    saver = checkpoint.import_meta_graph(path + ".meta", import_scope=scope)
    saver.restore(session, path)
    prefix = f"{scope}/" if scope else ""
    read = f"{prefix}current_loss_scale/Read/ReadVariableOp:0"
    assert session.run(read) == 16384.0


@pytest.mark.parametrize(
  ("content", "what"), [(None, "No such file"), (b"text", "no MetaGraph")]
)
def test_no_meta_graph(content, what, tmp_path):
  path = tmp_path / "x.meta"
  if content:
    path.write_bytes(content)
  with pytest.raises(checkpoint.CheckpointError, match=what):
    checkpoint.import_meta_graph(path)


if __name__ == "__main__":
  helpers.main()

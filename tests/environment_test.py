# SPDX-License-Identifier: Apache-2.0
"""Tests that NVIDIA's environment variables give optimizers loss scales."""

import contextlib
import copy
import itertools
import pickle

import half_precision
import helpers
import numpy as np
from object_models import Model
import pytest
from scaled_optimizers import wrap
import tensorflow as tf
import trainers

from tf1_contrib import opt
import tf_compat_lossscale as tfl
from tf_compat_lossscale import checkpoint
from tf_compat_lossscale import environment
from tf_compat_lossscale import monitoring
from tf_compat_lossscale._core import legacy_names

tf1 = tf.compat.v1
_SCHEDULE = [1.0, 2.0, float("inf"), 0.5, float("nan"), 1.0, -3.0]
_METHODS = ("__init__", "compute_gradients", "apply_gradients", "variables")


@pytest.fixture(autouse=True)
def honored(monkeypatch):
  """Honors an environment without the variables, and takes all back."""
  for name in (
    legacy_names.MIXED_PRECISION,
    legacy_names.LOSS_SCALING,
    legacy_names.GRAPH_REWRITE,
  ):
    monkeypatch.delenv(name, raising=False)
  monkeypatch.setattr(environment, "_printed", set())
  with half_precision.on_cpu():
    tfl.honor_environment()
    yield
    tfl.ignore_environment()


def own_scale(opt):
  """Returns the loss scale of an optimizer by the environment."""
  return opt._trackable_children()["loss_scale"]


def make_scaled(kind, monkeypatch):
  """Returns an optimizer that has a loss scale by the environment."""
  monkeypatch.setenv(legacy_names.LOSS_SCALING, "1")
  opt = helpers.INNER[kind]()
  monkeypatch.delenv(legacy_names.LOSS_SCALING)
  # A Trainer reads these attributes of wrappers.
  opt._optimizer, opt._loss_scale = opt, own_scale(opt)
  return opt


@pytest.mark.parametrize(
  ("mode", "kind", "apply_only", "replicas"),
  helpers.pairs(
    helpers.MODES, ["sgd", "momentum", "adam"], [False, True], [1, 2]
  ),
)
def test_steps_are_those_of_the_wrapper(
  mode, kind, apply_only, replicas, monkeypatch
):
  specs = (trainers.Spec(), trainers.Spec((3, 2), kind="sparse"))

  def record(make):
    strategy = helpers.two_replicas() if replicas == 2 else None
    with trainers.Trainer(
      mode, make, specs, apply_only, strategy=strategy
    ) as trainer:
      for factor in _SCHEDULE:
        trainer.step(factor, factor)
        yield trainer.state(), trainer.loss_scale, trainer.good_steps

  expected = list(record(wrap("dynamic", helpers.INNER[kind])))
  found = list(record(lambda: make_scaled(kind, monkeypatch)))
  for (state, *scale), (wrapped_state, *wrapped_scale) in zip(found, expected):
    if not mode.startswith("graph"):  # `variables` leaves out the loss scale.
      for name in [x for x in wrapped_state if x not in state]:
        assert name.endswith(("current_loss_scale", "good_steps"))
        del wrapped_state[name]
    trainers.assert_same_state(state, wrapped_state)
    assert scale == wrapped_scale
  assert found[-1][1:] == (2.0**13, 2)


# Values of the three variables -> whether there is a loss scale, and whether
# the graph is rewritten.
_SETTINGS = [
  ((None, None, None), False, False),
  (("1", None, None), True, True),
  (("0", None, None), False, False),
  # Python read the variables of loss scales, C++ those of the rewrite.
  (("true", None, None), False, True),
  (("1", "0", None), False, True),
  (("1", None, "0"), True, False),
  ((None, "1", None), True, False),
  ((None, None, "1"), False, True),
  (("0", "1", "1"), True, True),
  (("1", "", ""), False, True),
  ((None, "true", "True"), False, True),
  (("1", "0", "false"), False, False),
]


@pytest.mark.parametrize(("values", "scales", "rewrites"), _SETTINGS)
def test_settings(values, scales, rewrites, monkeypatch):
  switches = (
    legacy_names.MIXED_PRECISION,
    legacy_names.LOSS_SCALING,
    legacy_names.GRAPH_REWRITE,
  )
  for name, value in zip(switches, values):
    if value is not None:
      monkeypatch.setenv(name, value)
  opt = helpers.INNER["sgd"]()
  assert ("loss_scale" in opt._trackable_children()) == scales
  assert half_precision.is_float16() == rewrites


@pytest.mark.parametrize("kind", [tf1.Session, tf1.InteractiveSession])
def test_a_session_turns_the_rewrite_on(kind, monkeypatch):
  monkeypatch.setenv(legacy_names.GRAPH_REWRITE, "1")
  config = tf1.ConfigProto(device_count={"CPU": 1})
  is_on = half_precision.is_float16(config, kind)
  assert is_on == (kind is tf1.Session)  # The other one optimizes no graph.
  monkeypatch.delenv(legacy_names.GRAPH_REWRITE)
  assert half_precision.is_float16()


@pytest.mark.parametrize(
  "wrap",
  [
    lambda opt: tfl.MixedPrecisionLossScaleOptimizer(opt, 8.0),
    tfl.enable_mixed_precision_graph_rewrite,
  ],
)
@pytest.mark.parametrize("graph", [False, True])
def test_the_scale_of_the_program_wins(wrap, graph, monkeypatch, tmp_path):
  monkeypatch.setenv(legacy_names.MIXED_PRECISION, "1")
  with contextlib.ExitStack() as stack:
    if graph:
      stack.enter_context(tf.Graph().as_default())
    inner = helpers.INNER["momentum"]()
    opt = wrap(inner)
    assert environment.list_scaled(opt) == [(opt, opt.loss_scale)]
    assert own_scale(inner) is opt.loss_scale
    w = tf1.get_variable("w", initializer=1.0, use_resource=True)
    seen = []
    loss = lambda: seen.append(w * 0.5) or seen[-1]  # noqa: E731
    step = opt.minimize(loss() if graph else loss, var_list=[w])
    if graph:
      session = stack.enter_context(tf1.Session())
      session.run(tf1.global_variables_initializer())
      session.run(step)
      names = {v.op.name for v in tf1.global_variables()}
      assert len([name for name in names if "loss_scale" in name]) <= 1, names
      assert session.run(w) != 1.0
    else:
      assert float(w) != 1.0


def test_contrib_wraps_an_optimizer_that_has_a_scale(monkeypatch):
  monkeypatch.setenv(legacy_names.LOSS_SCALING, "1")
  manager = tfl.contrib.FixedLossScaleManager(8.0)
  opt = tfl.contrib.LossScaleOptimizer(helpers.INNER["sgd"](), manager)
  scale = own_scale(opt._opt)
  w = tf.Variable(1.0)
  for factor in (1.0, float("inf")):
    opt.minimize(lambda f=factor: w * w * f, var_list=[w])
  assert float(w) == 0.0
  # The bad step did not reach the inner optimizer.
  assert int(scale.good_steps) == 1 and float(scale()) == 2.0**15


class OwnApply(tf1.train.Optimizer):
  """An optimizer that applies gradients itself, as BERT's does."""

  def __init__(self):
    super().__init__(False, "OwnApply")

  def apply_gradients(self, grads_and_vars, global_step=None, name=None):
    for grad, var in grads_and_vars:
      var.assign_sub(grad)


def test_an_overridden_method_goes_without_its_half(monkeypatch):
  monkeypatch.setenv(legacy_names.LOSS_SCALING, "1")
  opt = OwnApply()
  w = tf.Variable(1.0)
  opt.minimize(lambda: w * 0.25, var_list=[w])
  assert float(w) == 0.75
  assert int(own_scale(opt).good_steps) == 0
  opt.minimize(lambda: w * float("inf"), var_list=[w])
  assert not np.isfinite(float(w))


class _Computes(tf1.train.GradientDescentOptimizer):
  """A wrapper that applies gradients itself."""

  inner = None

  def compute_gradients(self, *args, **kwargs):
    return self.inner.compute_gradients(*args, **kwargs)


class _Applies(tf1.train.GradientDescentOptimizer):
  """A wrapper that computes gradients itself."""

  inner = None

  def apply_gradients(self, *args, **kwargs):
    return self.inner.apply_gradients(*args, **kwargs)


@pytest.mark.parametrize(
  ("wrapper", "computes", "warnings"),
  [
    (None, True, 0),
    (None, False, 1),
    (_Computes, True, 0),
    (_Computes, False, 1),
    (_Applies, True, 0),
    (_Applies, False, 1),
  ],
)
def test_a_loss_that_nobody_scales_is_said(
  wrapper, computes, warnings, monkeypatch, caplog
):
  monkeypatch.setenv(legacy_names.LOSS_SCALING, "1")
  optimizer = tf1.train.GradientDescentOptimizer(1.0)
  if wrapper is not None:
    inner, optimizer = optimizer, wrapper(1.0)
    optimizer.inner = inner
  with tf.Graph().as_default():
    w = tf1.get_variable("w", initializer=1.0, use_resource=True)
    for _ in range(2):
      loss = w * w
      pairs = [(tf.gradients(loss, w)[0], w)]
      if computes:
        pairs = optimizer.compute_gradients(loss)
      optimizer.apply_gradients(pairs)
  assert caplog.text.count("compute_gradients was not called") == warnings


def test_what_happened_is_printed_once(monkeypatch, capfd):
  monkeypatch.setenv(legacy_names.MIXED_PRECISION, "1")
  helpers.INNER["sgd"]()
  helpers.INNER["adam"]()
  (line,) = [
    line for line in capfd.readouterr().err.splitlines() if "tf-loss" in line
  ]
  assert line.startswith(
    f"tf-lossscale: {legacy_names.MIXED_PRECISION}=1, as in NVIDI"
  )
  assert "graph rewrite" in line and "DynamicLossScale" in line
  monkeypatch.setenv(legacy_names.GRAPH_REWRITE, "0")
  monkeypatch.setenv(legacy_names.LOSS_SCALING, "1")
  helpers.INNER["sgd"]()
  err = capfd.readouterr().err
  assert f"tf-lossscale: {legacy_names.LOSS_SCALING}=1, as" in err
  assert "rewrite" not in err
  monkeypatch.setattr(environment, "_printed", set())
  tfl.honor_environment(quiet=True)
  helpers.INNER["sgd"]()
  assert "tf-lossscale" not in capfd.readouterr().err


def test_ignoring_takes_all_back(monkeypatch):
  opt = make_scaled("sgd", monkeypatch)
  methods = vars(tf1.train.Optimizer)
  assert methods["__init__"] is environment._initialize
  tfl.ignore_environment()
  for name in _METHODS:
    method = methods[name]
    assert method.__module__.startswith("tensorflow.") and not hasattr(
      method, "__wrapped__"
    )
  for session in (tf1.Session, tf1.InteractiveSession):
    assert not hasattr(session.__init__, "__wrapped__")
  monkeypatch.setenv(legacy_names.LOSS_SCALING, "1")
  w = tf.Variable(1.0)
  for made in (opt, helpers.INNER["sgd"]()):
    made.minimize(lambda: w * float("inf"), var_list=[w])
    assert not np.isfinite(float(w))
    w.assign(1.0)
  assert "loss_scale" not in made._trackable_children()


def test_patches_of_others_stay(monkeypatch):
  tfl.ignore_environment()
  calls = []

  def make_patch(name):
    own = tf1.train.Optimizer.apply_gradients

    def patched(self, *args, **kwargs):
      calls.append(name)
      return own(self, *args, **kwargs)

    monkeypatch.setattr(tf1.train.Optimizer, "apply_gradients", patched)
    return patched

  below = make_patch("below")
  tfl.honor_environment()
  above = make_patch("above")
  opt = make_scaled("sgd", monkeypatch)
  w = tf.Variable(1.0)
  opt.minimize(lambda: w * float("inf"), var_list=[w])
  opt.minimize(lambda: w * 0.5, var_list=[w])
  # The first step was skipped.
  assert calls == ["above", "above", "below"] and float(w) == 0.75
  tfl.ignore_environment()
  assert tf1.train.Optimizer.apply_gradients is above
  opt.minimize(lambda: w * float("inf"), var_list=[w])
  assert not np.isfinite(float(w))
  # A second call sets no method again, and a later one can take all back.
  tfl.honor_environment()
  assert tf1.train.Optimizer.apply_gradients is above
  ours = environment._apply_gradients
  monkeypatch.setattr(tf1.train.Optimizer, "apply_gradients", ours)
  tfl.ignore_environment()
  assert tf1.train.Optimizer.apply_gradients is below
  monkeypatch.undo()


# How an optimizer gets its loss scale, here and in the checkpoint.
_WAYS = ("environment", "dynamic", "contrib", "plain")


def make_model(way, session, monkeypatch):
  """Returns a trained model whose variables have different values."""
  monkeypatch.delenv(legacy_names.LOSS_SCALING, raising=False)
  if way == "environment":
    monkeypatch.setenv(legacy_names.LOSS_SCALING, "1")
  wrapper = "plain" if way == "environment" else way
  model = Model([("adam", wrapper)], session)
  if way == "environment":
    ((_, opt, _, _),) = model.parts
    opt._loss_scale = own_scale(opt)
    model.spec = [("adam", "dynamic")]
  return model.train()


@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.parametrize(
  ("there", "here"),
  [pair for pair in itertools.product(_WAYS, _WAYS) if "environment" in pair],
)
def test_checkpoints_by_object(there, here, graph, monkeypatch, tmp_path):
  with contextlib.ExitStack() as stack:

    def make(way, start):
      session = None
      if graph:
        stack.enter_context(tf.Graph().as_default())
        session = stack.enter_context(tf1.Session())
      return make_model(way, session, monkeypatch).stamp(start)

    old = make(there, 100)
    path, saved = old.save(tmp_path), old.values()
    if there == "environment":
      assert checkpoint.describe(path).api == "NVIDIA's TensorFlow 1"
    new = make(here, 500)
    report = new.restore(path)
    restored = new.values()
  common = restored.keys() & saved.keys()
  assert {r: restored[r] for r in common} == {r: saved[r] for r in common}
  assert {"0/w/m", "0/b/v", "0/b1"} <= common
  if "plain" not in (there, here):
    assert {"0/scale", "0/good"} <= common
  elif here == "environment":
    assert len(report.initialized) == 2 and restored["0/scale"] == 2.0**15


class Passes(tf1.train.Optimizer):
  """A wrapper that passes both halves of a step on, as Horovod's does."""

  def __init__(self, opt, attribute="_optimizer"):
    super().__init__(False, "Passes")
    setattr(self, attribute, opt)
    self.compute_gradients = opt.compute_gradients
    self.apply_gradients = opt.apply_gradients


class CallsSuper(tf1.train.MomentumOptimizer):
  """A wrapper that uses its own loss scale, and no other."""

  def __init__(self, opt):
    super().__init__(0.1, 0.9)
    self._opt = opt

  def apply_gradients(self, *args, **kwargs):
    return super().apply_gradients(*args, **kwargs)


def make_contrib():
  manager = tfl.contrib.ExponentialUpdateLossScaleManager(8.0, 100)
  return tfl.contrib.LossScaleOptimizer(helpers.INNER["momentum"](), manager)


def make_wrapped():
  with pytest.MonkeyPatch.context() as context:
    context.delenv(legacy_names.LOSS_SCALING)
    return tfl.MixedPrecisionLossScaleOptimizer(
      helpers.INNER["momentum"](), tfl.DynamicLossScale(8.0)
    )


# Name -> makes a wrapper of what a function returns.
_WRAPPERS = {
  "horovod": lambda x: Passes(x()),
  "two levels": lambda x: Passes(Passes(x(), "_opt")),
  "super": lambda x: CallsSuper(x()),
  "contrib": lambda x: Passes(make_contrib()),
  "wrapped": lambda x: Passes(make_wrapped()),
  "average": lambda x: opt.MovingAverageOptimizer(x()),
  "copy": lambda x: copy.copy(x()),
}


@pytest.mark.parametrize("kind", ["horovod", "wrapped"])
def test_hooks_watch_the_scale_that_is_used(kind, monkeypatch):
  monkeypatch.setenv(legacy_names.LOSS_SCALING, "1")
  make = lambda: _WRAPPERS[kind](helpers.INNER["momentum"])  # noqa: E731
  with trainers.Trainer("graph_v1", make) as trainer:
    hook = monitoring.LossScaleHook(trainer.opt, on_stuck="stop", patience=3)
    for factor in (1.0, 1.0, np.inf, np.inf, np.inf):
      assert not hook.stop_requested
      feed = {trainer.feeds[0]: [factor] * 2}
      hook.run(trainer.session, trainer.train_op, feed)
    assert hook.stop_requested


@pytest.mark.parametrize("kind", _WRAPPERS)
def test_workers_agree_on_the_scale_that_is_used(kind, monkeypatch):
  monkeypatch.setenv(legacy_names.LOSS_SCALING, "1")
  w = tf.Variable(1.0)
  opt = _WRAPPERS[kind](helpers.INNER["momentum"])
  asked = []

  def all_reduce(value):
    asked.append(value)
    return value + 1.0  # Another worker met an infinity.

  tfl.distributed.agree(opt, all_reduce)
  if kind == "average":
    opt = opt._optimizer
  opt.minimize(lambda: w * 0.5, var_list=[w])
  assert len(asked) == 1 and float(w) == 1.0


# How an optimizer is copied -> whether the copy shares the loss scale.
_COPIES = {
  "copy": (copy.copy, True),
  "deepcopy": (copy.deepcopy, False),
  "pickle": (lambda opt: pickle.loads(pickle.dumps(opt)), False),
  "copy of a copy": (lambda opt: copy.copy(copy.copy(opt)), True),
}


class OwnRate(tf1.train.GradientDescentOptimizer):
  """An optimizer of the program's own."""

  def compute_gradients(self, *args, **kwargs):
    pairs = super().compute_gradients(*args, **kwargs)
    return [(grad * self.factor, var) for grad, var in pairs]

  factor = 1.0


@pytest.mark.parametrize("used", [False, True])
@pytest.mark.parametrize("way", _COPIES)
def test_copies_do_as_their_own_attributes_say(way, used, monkeypatch):
  monkeypatch.setenv(legacy_names.LOSS_SCALING, "1")
  make_copy, shares = _COPIES[way]
  opt = OwnRate(0.25)
  w = tf.Variable(0.0)
  if used:
    opt.minimize(lambda: w * 1.0, var_list=[w])
    w.assign(0.0)
  other = make_copy(opt)
  other._learning_rate = 1.0
  other.factor = 3.0
  # Each of them, in turns.
  for each, expected in ((other, -3.0), (opt, -0.25), (other, -3.0)):
    each.minimize(lambda: w * 1.0, var_list=[w])
    assert float(w) == expected
    w.assign(0.0)
  other.minimize(lambda: w * np.inf, var_list=[w])
  assert float(w) == 0.0
  found = [float(own_scale(each)()) for each in (opt, other)]
  assert found == ([2.0**14] * 2 if shares else [2.0**15, 2.0**14])

"""What this package saves, TensorFlow's own classes restore, and back."""

import math

import helpers
from helpers import INNER
from helpers import MODES
from helpers import OWN
from helpers import Spec
from helpers import Trainer
import pytest
import tensorflow as tf

import tf_compat_lossscale as tfl

tf1 = tf.compat.v1

_SPECS = (Spec((3,)), Spec((4, 2), kind="sparse"))


def trainer(module, mode, inner, loss_scale, use_resource=True, initial=2.0):
  def make():
    scale = 64.0
    if loss_scale == "dynamic":
      scale = module.DynamicLossScale(initial, 3)
    return module.MixedPrecisionLossScaleOptimizer(INNER[inner](), scale)

  return Trainer(mode, make, _SPECS, use_resource=use_resource)


def objects(t):
  """The trackables of a training program, as people name them."""
  return {
    "optimizer": t.opt,
    "global_step": t.global_step,
    **{f"v{i}": v for i, v in enumerate(t.variables)},
  }


def run(t, steps):
  for i in range(steps):
    t.step(math.nan if i == 1 else 0.25 * i, -0.5)


def exchange(saves, restores, mode, inner, loss_scale, by_name, path, **kwargs):
  """Trains, saves, restores into the other classes, and trains both on."""
  with trainer(saves, mode, inner, loss_scale, initial=8.0, **kwargs) as t:
    run(t, 4)
    if by_name:
      saved = tf1.train.Saver().save(t.session, path)
    else:
      checkpoint = tf1.train.Checkpoint(**objects(t))
      saved = checkpoint.save(path, session=getattr(t, "session", None))
    run(t, 4)
    expected = t.state()
  with trainer(restores, mode, inner, loss_scale, **kwargs) as t:
    if by_name:
      tf1.train.Saver().restore(t.session, saved)
    else:
      if t.graph is None:
        run(t, 1)  # Makes the slots, which the checkpoint then fills.
      status = tf1.train.Checkpoint(**objects(t)).restore(saved)
      status.assert_consumed()
      if t.graph is not None:
        status.run_restore_ops(t.session)
    run(t, 4)
    helpers.assert_same_state(t.state(), expected)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("inner", INNER)
@pytest.mark.parametrize("loss_scale", ["dynamic", "fixed"])
@pytest.mark.parametrize(
  ("saves", "restores"), [(tfl, OWN), (OWN, tfl), (tfl, tfl)]
)
def test_by_object(mode, inner, loss_scale, saves, restores, tmp_path):
  path = str(tmp_path / "ckpt")
  exchange(saves, restores, mode, inner, loss_scale, False, path)


@pytest.mark.parametrize("mode", helpers.GRAPH_MODES)
@pytest.mark.parametrize("inner", INNER)
@pytest.mark.parametrize("loss_scale", ["dynamic", "fixed"])
@pytest.mark.parametrize(("saves", "restores"), [(tfl, OWN), (OWN, tfl)])
def test_by_name(mode, inner, loss_scale, saves, restores, tmp_path):
  path = str(tmp_path / "ckpt")
  exchange(saves, restores, mode, inner, loss_scale, True, path)


@pytest.mark.parametrize("by_name", [True, False])
@pytest.mark.parametrize(("saves", "restores"), [(tfl, OWN), (OWN, tfl)])
def test_ref_variables(by_name, saves, restores, tmp_path):
  path = str(tmp_path / "ckpt")
  exchange(
    saves,
    restores,
    "graph_v1",
    "adam",
    "dynamic",
    by_name,
    path,
    use_resource=False,
  )


def test_keys_are_tensorflows(tmp_path):
  keys = []
  for i, module in enumerate((OWN, tfl)):
    with trainer(module, "eager", "adam", "dynamic") as t:
      run(t, 1)
      checkpoint = tf.train.Checkpoint(**objects(t))
      path = checkpoint.save(str(tmp_path / str(i)))
    keys.append([name for name, _ in tf.train.list_variables(path)])
  assert keys[0] == keys[1]
  assert (
    "v0/.OPTIMIZER_SLOT/optimizer/base_optimizer/m/.ATTRIBUTES/"
    + ("VARIABLE_VALUE")
    in keys[1]
  )


def test_deferred_slots_and_weights(tmp_path):
  """Restored before a step was taken, state waits for its variables."""
  with trainer(tfl, "eager", "momentum", "dynamic", initial=8.0) as t:
    run(t, 4)
    path = tf.train.Checkpoint(**objects(t)).save(str(tmp_path / "ckpt"))
    run(t, 4)
    expected = t.state()
  with trainer(tfl, "eager", "momentum", "dynamic") as t:
    status = tf.train.Checkpoint(**objects(t)).restore(path)
    run(t, 4)
    status.assert_consumed()
    helpers.assert_same_state(t.state(), expected)


@pytest.mark.parametrize("mode", helpers.GRAPH_MODES)
def test_slots_are_listed_to_people_all_the_same(mode):
  with trainer(tfl, mode, "adam", "dynamic") as t:
    assert t.opt.get_slot_names() == ["m", "v"]


if __name__ == "__main__":
  helpers.main()

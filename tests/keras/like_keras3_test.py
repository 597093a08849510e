# SPDX-License-Identifier: Apache-2.0
"""Tests that `to_keras3` finds an optimizer that does the same, or refuses."""

import helpers
from keras_pairs import assert_agree
from keras_pairs import assert_close
from keras_pairs import k2
from keras_pairs import k3
from keras_pairs import KINDS
from keras_pairs import kinds
from keras_pairs import make_variables
from keras_pairs import needs_keras_3
from keras_pairs import state_of
from keras_pairs import take_over
from keras_pairs import train2
from keras_pairs import train3
from keras_pairs import wrap
import pytest

from tf_compat_lossscale import keras

_LIKE = [
  *(
    (kind, name, arguments)
    for kind in KINDS
    for name, arguments in (
      ("SGD", {"learning_rate": 0.1}),
      ("SGD", {"learning_rate": 0.1, "momentum": 0.9}),
      ("SGD", {"learning_rate": 1, "momentum": 0.5, "nesterov": True}),
      ("Adam", {"learning_rate": 0.1}),
      ("Adam", {"learning_rate": 0.1, "amsgrad": True, "epsilon": 1e-3}),
      ("Adam", {"learning_rate": 0.1, "clipnorm": 0.5}),
      ("Adam", {"learning_rate": 0.1, "clipvalue": 0.5}),
      ("SGD", {"learning_rate": 0.1, "global_clipnorm": 0.5}),
      ("Adamax", {"learning_rate": 0.1}),
      ("Adagrad", {"learning_rate": 0.1}),
      ("Adadelta", {"learning_rate": 1.0}),
      ("RMSprop", {"learning_rate": 0.01, "momentum": 0.5}),
      ("RMSprop", {"learning_rate": 0.01, "momentum": 0.5, "centered": True}),
      ("Ftrl", {"learning_rate": 0.1}),
      (
        "Ftrl",
        {
          "learning_rate": 0.1,
          "l1_regularization_strength": 0.01,
          "l2_regularization_strength": 0.01,
          "l2_shrinkage_regularization_strength": 0.01,
          "beta": 0.1,
        },
      ),
    )
  ),
  ("legacy", "Nadam", {"learning_rate": 0.1, "schedule_decay": 1.0}),
  ("new", "Nadam", {"learning_rate": 0.1}),
  ("new", "RMSprop", {"learning_rate": 0.01}),
  ("new", "RMSprop", {"learning_rate": 0.01, "centered": True}),
  ("new", "Adagrad", {"learning_rate": 0.1, "initial_accumulator_value": 0.0}),
  ("new", "AdamW", {"learning_rate": 0.1}),
  ("new", "SGD", {"learning_rate": 0.1, "weight_decay": 0.1}),
  ("new", "Adafactor", {"learning_rate": 0.1}),
  ("new", "Adafactor", {"learning_rate": 0.1, "relative_step": False}),
  ("new", "Lion", {"learning_rate": 0.01}),
  (
    "new",
    "Adam",
    {
      "learning_rate": 0.1,
      "use_ema": True,
      "ema_momentum": 0.9,
      "ema_overwrite_frequency": 4,
    },
  ),
]


# All releases of TensorFlow have the same Keras 3: the older one runs a case
# for each kind.
_CORE = [
  next(case for case in _LIKE if case[0] == kind and case[1] == "Adam")
  for kind in KINDS
]


def mark_cases():
  """Yields the cases, and marks those that the newest release alone runs."""
  for case in _LIKE:
    marks = () if case in _CORE else pytest.mark.any_release
    yield pytest.param(*case, marks=marks)


@needs_keras_3
@pytest.mark.parametrize(("kind", "name", "arguments"), [*mark_cases()])
def test_optimizers_go_on(kind, name, arguments):
  """Checks a take-over before the first step, and another one later."""
  # All optimizers share the loss scale, so two of them train for longer.
  is_core = (kind, name, arguments) in _CORE
  growth, first, then = (5, 6, 5) if is_core else (2, 3, 2)
  opt2 = wrap(getattr(KINDS[kind], name)(**arguments), growth=growth)
  ws = make_variables() if is_core else make_variables("ab")
  followers = []
  if "use_ema" not in arguments:
    followers.append(take_over(opt2, ws))
  # float32 rounds 1 - beta ** step coarsely in the first steps, either way.
  assert_agree(opt2, ws, followers, first, atol=1e-4)
  late = take_over(opt2, ws)
  assert_agree(opt2, ws, [late], then)
  if is_core:
    ((opt3, news),) = followers
    train3(opt3, news, range(6, 11))
    assert_agree(opt2, ws, [late], 5)
    train3(opt3, news, range(11, 16))
    assert_close(news, ws, atol=1e-4)
    assert state_of(opt3) == state_of(opt2)
    assert float(late[0].dynamic_scale) == 512.0
  else:
    assert float(late[0].dynamic_scale) == 256.0
  assert type(late[0].inner_optimizer) is getattr(k3.optimizers, name)


@needs_keras_3
@pytest.mark.parametrize(
  ("kind", "name", "arguments", "why"),
  [
    ("legacy", "RMSprop", {}, r"sqrt\(mean square\) \+ epsilon"),
    ("legacy", "RMSprop", {"centered": True}, r"sqrt\(mean square\)"),
    ("legacy", "Adagrad", {"initial_accumulator_value": 1e-4}, "accumulator"),
    ("legacy", "Adagrad", {"initial_accumulator_value": 0.0}, "accumulator"),
    ("legacy", "Nadam", {}, "schedule of momentum"),
    ("legacy", "SGD", {"decay": 0.5}, "decay"),
    ("legacy", "SGD", {"clipnorm": 1.0, "clipvalue": 1.0}, "clipvalue"),
    ("legacy", "SGD", {"learning_rate": lambda: 0.1}, "function"),
    ("legacy", "Adam", {"beta_1": lambda: 0.1}, "beta_1 is a function"),
    ("new", "SGD", {"clipnorm": 1.0, "clipvalue": 1.0}, "clipvalue"),
    ("new", "Adam", {"use_ema": True}, "use_ema"),
  ],
)
def test_what_keras_3_cannot_do(kind, name, arguments, why):
  opt2 = wrap(getattr(KINDS[kind], name)(**arguments))
  with pytest.raises(ValueError, match=why) as error:
    keras.to_keras3(opt2)
  assert "optimizer=…" in str(error.value)
  mine = k3.optimizers.SGD(0.25)
  assert keras.to_keras3(opt2, optimizer=mine).inner_optimizer is mine


class MySchedule(k2.optimizers.schedules.LearningRateSchedule):
  def __call__(self, step):
    return 0.1

  def get_config(self):
    raise NotImplementedError


class MyAdam(k2.optimizers.legacy.Adam):
  pass


Adam = type("Adam", (MyAdam,), {})


@needs_keras_3
@pytest.mark.parametrize(
  ("make", "why"),
  [
    (lambda: k2.optimizers.legacy.SGD(MySchedule()), "schedule"),
    (lambda: k2.optimizers.SGD(MySchedule()), "schedule"),
    (MyAdam, "MyAdam"),
    (Adam, "no counterpart"),
  ],
)
def test_what_is_the_users_own(make, why):
  opt2 = wrap(make())
  with pytest.raises(ValueError, match=why):
    keras.to_keras3(opt2)
  keras.to_keras3(opt2, optimizer=k3.optimizers.SGD(0.25))


def schedules(name):
  """Yields schedules of Keras 2 with a name, or without one if it is None."""
  s = k2.optimizers.schedules
  for staircase in (False, True):
    yield s.ExponentialDecay(0.5, 3, 0.5, staircase, name=name)
    yield s.InverseTimeDecay(0.5, 3, 0.5, staircase, name=name)
  yield s.PiecewiseConstantDecay([3, 8], [0.5, 0.25, 0.125], name=name)
  for cycle in (False, True):
    yield s.PolynomialDecay(0.5, 7, 0.1, 2.0, cycle, name=name)
  yield s.CosineDecay(0.5, 9, 0.1, name=name)
  yield s.CosineDecayRestarts(0.5, 4, 2.0, 0.5, 0.1, name=name)
  if "warmup_steps" in s.CosineDecay(0.5, 9).get_config():
    yield s.CosineDecay(0.0, 9, 0.1, warmup_target=0.5, warmup_steps=4)


@pytest.mark.any_release
@needs_keras_3
@pytest.mark.parametrize(("kind", "name"), [("legacy", None), ("new", "mine")])
def test_schedules(kind, name):
  """Compares schedules as functions of the step, without training."""
  for rate in schedules(name):
    opt3 = keras.to_keras3(wrap(KINDS[kind].SGD(rate)))
    schedule = opt3.inner_optimizer._learning_rate
    assert type(schedule).__name__ == type(rate).__name__
    steps = (0, 2, 3, 6, 8, 15, 39)
    assert_close(
      [schedule(step) for step in steps], [rate(step) for step in steps]
    )


@needs_keras_3
@kinds
def test_a_schedule_goes_on(kind):
  rate = k2.optimizers.schedules.ExponentialDecay(0.5, 3, 0.5)
  opt2, ws = wrap(KINDS[kind].SGD(rate)), make_variables()
  train2(opt2, ws, range(6))
  opt3, news = take_over(opt2, ws)
  assert_agree(opt2, ws, [(opt3, news)], 6)
  assert_close([opt3.learning_rate], [rate(12)])


if __name__ == "__main__":
  helpers.main()

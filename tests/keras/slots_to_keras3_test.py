# SPDX-License-Identifier: Apache-2.0
"""Tests how `to_keras3` copies slots: variables, weight decay, averages."""

import absl.logging
import helpers
from keras_pairs import assert_agree
from keras_pairs import assert_close
from keras_pairs import copy_variables
from keras_pairs import k2
from keras_pairs import k3
from keras_pairs import KINDS
from keras_pairs import kinds
from keras_pairs import make_variables
from keras_pairs import needs_keras_3
from keras_pairs import take_over
from keras_pairs import train2
from keras_pairs import train3
from keras_pairs import train_some
from keras_pairs import wrap
import pytest
import tensorflow as tf

from tf_compat_lossscale import keras


@needs_keras_3
@kinds
def test_variables(kind):
  def make():
    return KINDS[kind].SGD(0.1, momentum=0.9)

  opt2, ws = train_some(make)
  new = copy_variables(ws)
  kept = (
    [opt2.inner_optimizer.get_slot(w, "momentum") for w in ws]
    if kind == "legacy"
    else opt2.inner_optimizer.momentums
  )
  for given, order in (
    (new, (0, 1, 2)),
    (list(zip(ws, new))[::-1], (2, 1, 0)),
    (list(zip(ws, new))[1:], (1, 2)),
    (zip(ws, new), (0, 1, 2)),
    (ws[::-1], (2, 1, 0)),  # Keras 3 trains the variables of Keras 2.
  ):
    opt3 = keras.to_keras3(opt2, variables=given)
    assert_close(opt3.inner_optimizer.momentums, [kept[i] for i in order])
    assert type(opt3) is k3.optimizers.LossScaleOptimizer
  for given, what in (
    ([], "variables is empty"),
    (new[:2], "slots for 3 variables"),
    (new[::-1], "shape"),
    ([new[0], new[0], new[1]], "twice"),
    ([(ws[1], new[1]), (ws[1], new[0])], "twice"),
    ([(tf.Variable(1.0), new[2]), *zip(ws[:2], new)], "not for"),
    ([ws[0], *new[1:]], "not for"),
  ):
    with pytest.raises(ValueError, match=what):
      keras.to_keras3(opt2, variables=given)
  for given in ("abc", ["abc"], 1, [(1, new[0])]):
    with pytest.raises(TypeError, match="variables must be"):
      keras.to_keras3(opt2, variables=given)
  with pytest.raises(TypeError, match="first of a pair must be Keras 2's"):
    keras.to_keras3(opt2, variables=list(zip(new, ws)))


@needs_keras_3
@kinds
def test_what_stays_behind_is_said(kind, caplog, monkeypatch):
  monkeypatch.setattr(absl.logging.get_absl_logger(), "propagate", True)

  def warnings_of(*args, **kwargs):
    caplog.clear()
    opt = keras.to_keras3(*args, **kwargs)
    return opt, [r.getMessage() for r in caplog.records if "to_keras3" in r.msg]

  def make():
    return KINDS[kind].Adam(0.1)

  opt2, ws = train_some(make)
  new = copy_variables(ws)
  opt3, said = warnings_of(opt2)
  assert len(said) == 1 and "variables=" in said[0] and "7 steps" in said[0]
  assert int(opt3.iterations) == 7
  assert warnings_of(opt2, variables=new)[1] == []
  assert len(warnings_of(opt2, variables=list(zip(ws, new))[1:])[1]) == 1
  sgd = k3.optimizers.SGD(0.1)
  said = warnings_of(opt2, optimizer=sgd, variables=new)[1]
  assert len(said) == 1 and "_velocities" in said[0]
  assert warnings_of(wrap(make()))[1] == []
  plain, _ = train_some(lambda: KINDS[kind].SGD(0.1))
  assert warnings_of(plain)[1] == []
  adam = k3.optimizers.Adam(0.1)
  opt3, said = warnings_of(opt2, optimizer=adam, variables=new)
  assert said == [] and float(adam._momentums[0][0, 0]) != 0.0


@needs_keras_3
def test_exclusions_from_weight_decay():
  def excluding(**kwargs):
    opt = k2.optimizers.AdamW(0.1, weight_decay=0.5)
    opt.exclude_from_weight_decay(**kwargs)
    return wrap(opt)

  for by_name in (False, True):
    for steps in (0, 7):
      ws = make_variables()
      how = {"var_names": ["^b"]} if by_name else {"var_list": [ws[1]]}
      opt2 = excluding(**how)
      train2(opt2, ws, range(steps))
      with pytest.raises(ValueError, match="variables="):
        keras.to_keras3(opt2)
      if by_name or not steps:
        with pytest.raises(ValueError, match="pairs"):
          keras.to_keras3(opt2, variables=copy_variables(ws))
      assert_agree(opt2, ws, [take_over(opt2, ws)], 6)
  ws = make_variables()
  opt2 = excluding(var_list=[ws[1]])
  train2(opt2, ws, range(3))
  by_order = copy_variables(ws)
  opt3 = keras.to_keras3(opt2, variables=by_order)
  train2(opt2, ws, range(3, 9))
  train3(opt3, by_order, range(3, 9))
  assert_close(by_order, ws)


@needs_keras_3
def test_averages():
  opt2, ws = train_some(lambda: k2.optimizers.SGD(0.1, use_ema=True))
  with pytest.raises(ValueError, match="averages of 0"):
    keras.to_keras3(opt2)
  averaging = k3.optimizers.SGD(0.1, use_ema=True)
  plain, ws = train_some(lambda: k2.optimizers.SGD(0.1))
  with pytest.raises(ValueError, match="averages of 0"):
    keras.to_keras3(plain, optimizer=averaging)
  new = copy_variables(ws)
  opt3 = keras.to_keras3(plain, optimizer=averaging, variables=new)
  opt3.finalize_variable_values(new)
  assert_close(new, ws)


if __name__ == "__main__":
  helpers.main()

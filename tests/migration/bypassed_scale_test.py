# SPDX-License-Identifier: Apache-2.0
"""Tests LS601: which sources bypass their loss scale."""

import textwrap

import pytest

from tf_compat_lossscale.migration import scanner

pytestmark = pytest.mark.any_release

_HEAD = """\
import tensorflow.compat.v1 as tf
import tf_compat_lossscale as tfl
tf.disable_v2_behavior()
"""
_WRAP = "opt = tfl.MixedPrecisionLossScaleOptimizer(inner, 'dynamic')"
_APPLY = "opt.apply_gradients(zip(grads, tvars))"


def find(body):
  """Returns the lines of the body that have a finding."""
  report = scanner.scan_text(
    (_HEAD + textwrap.dedent(body)).encode(),
    "program.py",
    scanner.Options(select=("LS601",)),
  )
  assert not report.errors
  return [finding.line - _HEAD.count("\n") for finding in report.findings]


@pytest.mark.parametrize(
  "lines",
  [
    [_WRAP, "grads = tf.gradients(loss, tvars)", _APPLY],
    [
      _WRAP,
      "grads, _ = tf.clip_by_global_norm(tf.gradients(loss, tvars), 1.0)",
      _APPLY,
    ],
    [_WRAP, "grads = tape.gradient(loss, tvars)", _APPLY],
    [
      "pairs = inner.compute_gradients(loss)",
      "if fp16:",
      f"  {_WRAP}",
      "pairs = [(tf.clip_by_norm(g, 1.0), v) for g, v in pairs]",
      "opt.apply_gradients(pairs)",
    ],
    [
      "manager = tfl.contrib.FixedLossScaleManager(128)",
      "opt = tfl.contrib.LossScaleOptimizer(inner, manager)",
      "grads = []",
      "for v in tvars:",
      "  grads.append(tf.gradients(loss, v)[0])",
      _APPLY,
    ],
    [
      "opt = NPULossScaleOptimizer(inner, manager)",
      "grads = tf.gradients(x, y)",
      _APPLY,
    ],
    [
      "opt = NPUOptimizer(inner, manager, is_loss_scale=is_fp16)",
      "grads = tf.gradients(x, y)",
      _APPLY,
    ],
    [
      "opt = NPUOptimizer(inner, manager, False, True)",
      "grads = tf.gradients(x, y)",
      _APPLY,
    ],
  ],
)
@pytest.mark.parametrize("indent", ["", "  "])
def test_bypassed(lines, indent):
  head = ["def train(loss, tvars):"] if indent else []
  body = "\n".join([*head, *(indent + line for line in lines)])
  assert find(body) == [len(lines) + len(head)]


def test_attributes():
  body = f"""\
    class Model:
      def __init__(self, inner):
        self.{_WRAP}

      def step(self, loss, tvars):
        grads = tf.gradients(loss, tvars)
        self.{_APPLY}
    """
  assert find(body) == [7]


@pytest.mark.parametrize(
  "lines",
  [
    [_WRAP, "grads, _ = zip(*opt.compute_gradients(loss, tvars))", _APPLY],
    [
      "opt = NPUOptimizer(inner, manager, True)",
      "grads = tf.gradients(x, y)",
      _APPLY,
    ],
    [
      "opt = NPUOptimizer(inner, is_loss_scale=False)",
      "grads = tf.gradients(x, y)",
      _APPLY,
    ],
    # By hand.
    [
      _WRAP,
      "s = opt.loss_scale()",
      "grads = [g / s for g in tf.gradients(loss * s, tvars)]",
      _APPLY,
    ],
    [
      _WRAP,
      "grads = tfl.gradients.unscale(tf.gradients(big, tvars), s)",
      _APPLY,
    ],
    [
      "opt = tfl.keras.LossScaleOptimizer(inner, 'dynamic')",
      "big = opt.get_scaled_loss(loss)",
      "grads = opt.get_unscaled_gradients(tape.gradient(big, tvars))",
      _APPLY,
    ],
    # One branch scales, or the gradients are replaced.
    [
      _WRAP,
      "grads = tf.gradients(loss, tvars)",
      "pairs = opt.compute_gradients(loss)",
      _APPLY,
    ],
    # Another optimizer, one without a loss scale, or a class of the program.
    [_WRAP, "grads = tf.gradients(loss, tvars)", f"other.{_APPLY[4:]}"],
    [
      "class LossScaleOptimizer: pass",
      "opt = LossScaleOptimizer(inner)",
      "grads = tf.gradients(loss, tvars)",
      _APPLY,
    ],
    # Nobody knows where the gradients are from.
    [_WRAP, "grads = compute()", _APPLY],
    [_WRAP, "grads = tf.nn.gradients", _APPLY],
    [_WRAP, "opt.apply_gradients()"],
  ],
)
def test_not_bypassed(lines):
  assert not find("\n".join(lines))


def test_another_function():
  body = f"""\
    def one(inner):
      {_WRAP}
      return opt

    def two(opt, loss, tvars):
      grads = tf.gradients(loss, tvars)
      {_APPLY}
    """
  assert not find(body)

# SPDX-License-Identifier: Apache-2.0
"""The program learns, and what it saves can be looked into."""

import os
import tempfile
import unittest

import training

from tf_compat_lossscale import checkpoint


class TrainingTest(unittest.TestCase):
  def test_training(self):
    with tempfile.TemporaryDirectory() as folder:
      path = os.path.join(folder, "model")
      loss, scale = training.train(50, path)
      self.assertLess(loss, 1e-3)
      self.assertEqual(scale, 2.0**9)
      (state,) = checkpoint.describe(path).loss_scales
      self.assertEqual(state.value, 2.0**9)


if __name__ == "__main__":
  unittest.main()

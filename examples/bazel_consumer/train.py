# SPDX-License-Identifier: Apache-2.0
"""Trains, and says how it went."""

import training

if __name__ == "__main__":
  loss, scale = training.train(50)
  print(f"loss {loss:.2g}, loss scale {scale:g}")

# SPDX-License-Identifier: Apache-2.0
"""Numbers of float32 in plain Python."""

from __future__ import annotations

import struct

# Float32's smallest normal number. Processors may round smaller numbers to 0.
SMALLEST = 2.0**-126
LARGEST = float(2**128 - 2**104)
# The bounds of the exponents that normal numbers have.
LEAST_EXPONENT, LARGEST_EXPONENT = -126, 127
LARGEST_POWER = 2.0**LARGEST_EXPONENT


def round_nearest(number: float) -> float:
  """Returns the nearest number of float32; an infinity if there is none."""
  try:
    rounded: float = struct.unpack("f", struct.pack("f", number))[0]
  except OverflowError:
    return float("inf") if number > 0 else float("-inf")
  return rounded


def round_inwards(bound: float, up: bool) -> float:
  """Returns the nearest number of float32 on one side of a bound."""
  rounded = round_nearest(bound)
  if rounded < bound if up else rounded > bound:
    # The bits of positive numbers are in the order of the numbers.
    (bits,) = struct.unpack("i", struct.pack("f", rounded))
    (rounded,) = struct.unpack("f", struct.pack("i", bits + (1 if up else -1)))
  return rounded

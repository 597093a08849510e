# SPDX-License-Identifier: Apache-2.0
"""The sets of variables to time: those of real networks, and extreme sets."""

from __future__ import annotations

Shape = tuple[int, ...]


def _resnet50() -> list[Shape]:
  """Returns ResNet-50's 161 shapes for ImageNet: 25.6 million parameters."""
  shapes: list[Shape] = [(7, 7, 3, 64), (64,), (64,)]
  inputs = 64
  for width, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
    for block in range(blocks):
      outputs = 4 * width
      convolutions = [
        (1, inputs, width),
        (3, width, width),
        (1, width, outputs),
      ]
      if block == 0:
        convolutions.append((1, inputs, outputs))
      for size, n_in, n_out in convolutions:
        shapes += [(size, size, n_in, n_out), (n_out,), (n_out,)]
      inputs = outputs
  return [*shapes, (2048, 1000), (1000,)]


def _bert_layers(layers: int) -> list[Shape]:
  """Returns the shapes of BERT-base's encoder layers: 768 wide, inside 3072."""
  layer: list[Shape] = [(768, 768), (768,)] * 4
  layer += [(768, 3072), (3072,), (3072, 768), (768,)] + [(768,)] * 4
  return layer * layers


TINY: Shape = (16,)

SHAPES: dict[str, list[Shape]] = {
  "ResNet-50": _resnet50(),
  "4 BERT layers": _bert_layers(4),
  "100 small": [(32, 32), (32,)] * 50,
  "400 tiny": [TINY] * 400,
  "2 x 4096^2": [(4096, 4096)] * 2,
}

EMBEDDING: list[Shape] = [(1_000_000, 64)]

# SPDX-License-Identifier: Apache-2.0
"""GPT-2's fine-tuning, which imports `tf.contrib.graph_editor`."""

import json
import pathlib

import numpy as np
import tensorflow as tf

from strangers_table import Program

_SIZES = {"n_vocab": 300, "n_ctx": 1024, "n_embd": 8, "n_head": 2, "n_layer": 1}


def _list_weights() -> dict[str, np.ndarray]:
  """Returns the weights of a network of one layer, by their names."""
  random = np.random.RandomState(1)
  width = _SIZES["n_embd"]
  shapes = {
    "wpe": (_SIZES["n_ctx"], width),
    "wte": (_SIZES["n_vocab"], width),
  }
  for norm in ("h0/ln_1", "h0/ln_2", "ln_f"):
    shapes |= {f"{norm}/g": (width,), f"{norm}/b": (width,)}
  for layer, inputs, outputs in (
    ("h0/attn/c_attn", width, 3 * width),
    ("h0/attn/c_proj", width, width),
    ("h0/mlp/c_fc", width, 4 * width),
    ("h0/mlp/c_proj", 4 * width, width),
  ):
    shapes |= {f"{layer}/w": (1, inputs, outputs), f"{layer}/b": (outputs,)}
  return {
    f"model/{name}": random.normal(0, 0.1, shape).astype(np.float32)
    for name, shape in shapes.items()
  }


def prepare(repo: pathlib.Path, work: pathlib.Path) -> None:
  """Writes a model of one layer whose tokens are bytes, and a text."""
  folder = repo / "models" / "tiny"
  folder.mkdir(parents=True)
  (folder / "hparams.json").write_text(json.dumps(_SIZES))
  signs = [*map(chr, range(ord("!"), ord("~") + 1)), "Ġ", "Ċ", "<|endoftext|>"]
  (folder / "encoder.json").write_text(
    json.dumps({sign: i for i, sign in enumerate(signs)})
  )
  (folder / "vocab.bpe").write_text("#version: 0.2\n")
  weights = _list_weights()
  names = sorted(weights)
  tf.raw_ops.SaveV2(
    prefix=str(folder / "model.ckpt"),
    tensor_names=names,
    shape_and_slices=[""] * len(names),
    tensors=[weights[name] for name in names],
  )
  (folder / "checkpoint").write_text('model_checkpoint_path: "model.ckpt"\n')
  (work / "text.txt").write_text("the quick brown fox " * 400)


PROGRAM = Program(
  name="gpt-2",
  repository="nshepperd/gpt-2",
  commit="b7cda3f48dd8543bc53d0dd6dee69b5cb386fb21",
  title="train.py",
  path=("src",),
  stand_ins=("tqdm",),
  needs={"regex": "regex", "toposort": "toposort"},
  start=(
    (
      *("train.py", "--dataset={work}/text.txt", "--model_name=tiny"),
      *("--sample_every=100000", "--sample_length=8"),
    ),
  ),
  checkpoint="checkpoint/run1",
  prepare=prepare,
  prints=r"\| +[\d.]+\] loss=",
  scale="no loss scale: it trains in float32",
  remark="a module that stands in ends its loop by Ctrl-C, as its users do",
)

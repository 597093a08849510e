# SPDX-License-Identifier: Apache-2.0
"""GPT-2's fine-tuning, with a model of two small layers."""

import pathlib

from strangers_table import Program

# Writes a new model, if there is none, then calls the trainer, which trains
# until somebody interrupts it: here after a number of batches.
_START = """
import json, os, runpy, sys
import tensorflow as tf
import encoder, load_dataset, model

if not os.path.isdir("models/tiny"):
  os.makedirs("models/tiny")
  sizes = dict(n_vocab=257, n_ctx=1024, n_embd=8, n_head=2, n_layer=2)
  letters = [*encoder.bytes_to_unicode().values(), "<|endoftext|>"]
  numbers = {letter: i for i, letter in enumerate(letters)}
  for name, value in (("hparams", sizes), ("encoder", numbers)):
    with open("models/tiny/%s.json" % name, "w") as file:
      json.dump(value, file)
  with open("models/tiny/vocab.bpe", "w") as file:
    file.write("#version\\n\\n")
  parameters = model.default_hparams()
  parameters.override_from_dict(sizes)
  with tf.Graph().as_default(), tf.Session() as session:
    model.model(hparams=parameters, X=tf.placeholder(tf.int32, [1, None]))
    session.run(tf.global_variables_initializer())
    tf.train.Saver(tf.trainable_variables()).save(session, "models/tiny/model")

left = int(sys.argv.pop(1))
sample_one = load_dataset.Sampler.sample

def sample(self, length):
  global left
  left -= 1
  if left < 0:
    raise KeyboardInterrupt
  return sample_one(self, length)

load_dataset.Sampler.sample = sample
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def prepare(repo: pathlib.Path, work: pathlib.Path) -> None:
  """Writes numbers as a text, and what starts the trainer."""
  (work / "data.txt").write_text(" ".join(str(i * i) for i in range(2000)))
  (repo / "start.py").write_text(_START)


PROGRAM = Program(
  name="gpt-2",
  repository="nshepperd/gpt-2",
  commit="b7cda3f48dd8543bc53d0dd6dee69b5cb386fb21",
  title="train.py",
  folder=None,
  path=("src", "."),
  needs={"regex": "regex", "toposort": "toposort", "tqdm": "tqdm"},
  start=(
    (
      *("{repo}/start.py", "4", "{repo}/train.py", "--dataset=data.txt"),
      *("--model_name=tiny", "--sample_length=4"),
    ),
  ),
  checkpoint="{work}/checkpoint/run1",
  prepare=prepare,
  prints=r"loss=\d",
  timeout=900,
  scale="no loss scale: it trains in float32",
  remark="its option memory_saving_gradients edits graphs: an error says so",
)

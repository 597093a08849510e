# SPDX-License-Identifier: Apache-2.0
"""finetune: BERT in mixed precision, by an Estimator without a Saver."""

import pathlib

from strangers_table import LOSS
from strangers_table import Program

# The project is a library. It turns float16 off without a GPU, and saves the
# weights alone, by joblib.
_TRAIN = """
import os
import sys
import joblib
import tensorflow as tf
import finetune.base
from finetune import Classifier
from finetune.base_models import BERTModelCased

work, batches = sys.argv[1], int(sys.argv[2])
weights = os.path.join(work, 'weights.jl')
finetune.base.gpu_info = lambda *_: {'fp16_inference': True}
model = Classifier(
    base_model=BERTModelCased, base_model_path=os.path.join(work, 'empty.jl'),
    mixed_precision=True, float_16_predict=True, save_adam_vars=True,
    permit_uninitialized='.', batch_size=2, n_epochs=1, n_embed=16, n_layer=2,
    num_layers_trained=2, n_heads=2, bert_intermediate_size=32, max_length=16,
    val_size=0, low_memory_mode=False, tensorboard_folder=None,
    max_grad_norm=1.0)
if os.path.exists(weights):
  model.init_from_checkpoint(weights)
words = ['good', 'bad', 'fine', 'poor']
texts = [' '.join(words[(i + j) % 4] for j in range(5))
         for i in range(2 * batches)]
labels = [str(i % 2) for i in range(2 * batches)]
saver = tf.compat.v1.train.CheckpointSaverHook(
    os.path.join(work, 'model'), save_steps=1000)
model.finetune(texts, labels, log_hooks=[saver])
joblib.dump(model.saver.variables, weights)
model.save(os.path.join(work, 'saved', 'model'))
print(Classifier.load(os.path.join(work, 'saved', 'model')).predict(texts[:2]))
"""


def prepare(repo: pathlib.Path, work: pathlib.Path) -> None:
  """Writes a vocabulary, and a program that trains as the README does."""
  import joblib

  bert = repo / "finetune" / "model" / "bert"
  bert.mkdir(parents=True, exist_ok=True)
  special = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
  words = (*special, "good", "bad", "fine", "poor")
  (bert / "vocab.txt").write_text("\n".join(words) + "\n")
  joblib.dump({}, bert / "bert_small_cased-v2.jl")
  joblib.dump({}, work / "empty.jl")
  (repo / "train.py").write_text(_TRAIN)


PROGRAM = Program(
  name="finetune",
  repository="IndicoDataSolutions/finetune",
  commit="b1b072cc2b0dd16545f96fc949d5d04af52d02d3",
  paths=("finetune",),
  title="Classifier(mixed_precision=True)",
  importable=("spacy", "tqdl", "bs4"),
  needs={
    "ftfy": "ftfy",
    "h5py": "h5py",
    "joblib": "joblib",
    "nltk": "nltk",
    "pandas": "pandas",
    "psutil": "psutil",
    "regex": "regex",
    "sentencepiece": "sentencepiece",
    "six": "six",
    "sklearn": "scikit-learn",
    "tabulate": "tabulate",
    "tensorflow_estimator": "tensorflow-estimator==2.15.*",
    "tqdm": "tqdm",
    "transformers": "transformers==4.36.2",
  },
  start=(("train.py", "{work}", "110"),),
  resume=(("train.py", "{work}", "210"),),
  checkpoint="{work}/model",
  prepare=prepare,
  loss=LOSS,
  initial=2**15,
  bypass="warns rightly: the program passes on gradients of `tf.gradients`, so "
  "that its loss is never scaled",
  remark="a program of ours calls the library, and says that a CPU has float16",
)

# SPDX-License-Identifier: Apache-2.0
"""TensorFlowTTS: a GAN of two Keras optimizers, each with its loss scale."""

import json
import pathlib

import numpy as np

from strangers_table import Program

_SIZES = {"train": 8, "dev": 2}


def prepare(repo: pathlib.Path, work: pathlib.Path) -> None:
  """Writes noise with its features, and tiny configurations."""
  random = np.random.RandomState(1)
  for part, count in _SIZES.items():
    (work / part).mkdir()
    for i in range(count):
      mel = random.rand(40, 80).astype(np.float32)
      wave = random.uniform(-1, 1, 40 * 16).astype(np.float32)
      np.save(work / part / f"{i}-norm-feats.npy", mel)
      np.save(work / part / f"{i}-wave.npy", wave)
  optimizer = {"lr": 0.0001, "beta_1": 0.5, "beta_2": 0.9}
  config = {
    "sampling_rate": 8000,
    "hop_size": 16,
    "format": "npy",
    "model_type": "melgan_generator",
    "melgan_generator_params": {
      "out_channels": 1,
      "kernel_size": 3,
      "filters": 16,
      "upsample_scales": [4, 4],
      "stack_kernel_size": 3,
      "stacks": 1,
      "is_weight_norm": False,
    },
    "melgan_discriminator_params": {
      "out_channels": 1,
      "scales": 2,
      "downsample_pooling": "AveragePooling1D",
      "downsample_pooling_params": {"pool_size": 4, "strides": 2},
      "kernel_sizes": [5, 3],
      "filters": 4,
      "max_downsample_filters": 16,
      "downsample_scales": [4],
      "nonlinear_activation": "LeakyReLU",
      "nonlinear_activation_params": {"alpha": 0.2},
      "is_weight_norm": False,
    },
    "lambda_feat_match": 10.0,
    "batch_size": 2,
    "batch_max_steps": 512,
    "batch_max_steps_valid": 512,
    "remove_short_samples": True,
    "allow_cache": True,
    "is_shuffle": True,
    "generator_optimizer_params": optimizer,
    "discriminator_optimizer_params": optimizer,
    "gradient_accumulation_steps": 1,
    "save_interval_steps": 10,
    "eval_interval_steps": 100,
    "log_interval_steps": 5,
    "discriminator_train_start_steps": 0,
    "num_save_intermediate_results": 0,
  }
  for steps in (10, 20):
    text = json.dumps({**config, "train_max_steps": steps})
    (work / f"{steps}.yaml").write_text(text)


_FLAGS = (
  *("examples/melgan/train_melgan.py", "--train-dir={work}/train"),
  *("--dev-dir={work}/dev", "--outdir={work}/model"),
  *("--generator_mixed_precision=1", "--discriminator_mixed_precision=1"),
)

PROGRAM = Program(
  name="tensorflow_tts",
  repository="TensorSpeech/TensorFlowTTS",
  commit="b7a0c5bc862787e7a90b77bde02164bca544477e",
  paths=("examples/melgan", "tensorflow_tts"),
  title="examples/melgan/train_melgan.py",
  importable=(
    *("soundfile", "librosa", "tensorflow_addons", "huggingface_hub"),
    *("g2p_en", "pyworld", "pyopenjtalk", "inflect", "unidecode"),
    *("pypinyin", "jamo", "textgrid", "german_transliterate", "unicodedata2"),
  ),
  needs={
    "scipy.signal:kaiser": "scipy<1.13",
    "sklearn": "scikit-learn",
    "tqdm": "tqdm",
    "yaml": "PyYAML",
  },
  start=((*_FLAGS, "--config={work}/10.yaml"),),
  resume=(
    (
      *(*_FLAGS, "--config={work}/20.yaml"),
      "--resume={work}/model/checkpoints/ckpt-10",
    ),
  ),
  checkpoint="{work}/model/checkpoints",
  prepare=prepare,
  settings={r"good_steps": 1995},
  remark="a GAN with two loss scales",
)

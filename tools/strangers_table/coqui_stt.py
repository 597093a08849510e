# SPDX-License-Identifier: Apache-2.0
"""Coqui STT, which began as DeepSpeech."""

from strangers_table import deepspeech
from strangers_table import LOSS
from strangers_table import Program

_COMMAND = (
  *("-m", "coqui_stt_training.train", "--train_files", "{work}/train.csv"),
  *("--alphabet_config_path", "{work}/alphabet.txt", "--n_hidden", "16"),
  *("--checkpoint_dir", "{work}/model", "--summary_dir", "{work}/summaries"),
  *("--automatic_mixed_precision", "true", "--epochs", "1"),
  *("--show_progressbar", "false", "--skip_batch_test", "true"),
)

PROGRAM = Program(
  name="coqui_stt",
  repository="coqui-ai/STT",
  commit="2e24173cd487bbc4ffea9f288edad83a882e0605",
  paths=("training",),
  title="coqui_stt_training.train --automatic_mixed_precision",
  folder="training",
  stand_ins=("attrdict", "ds_ctcdecoder", "coqui_stt_ctcdecoder"),
  importable=(
    *("clearml", "miniaudio", "opuslib", "optuna", "pyogg", "resampy"),
    *("sox", "webdataset", "webrtcvad"),
  ),
  needs={
    "coqpit": "coqpit",
    "pandas": "pandas",
    "progressbar": "progressbar2",
    "semver": "semver",
    "six": "six",
    "tqdm": "tqdm",
    "xdg": "pyxdg",
  },
  start=(_COMMAND,),
  checkpoint="{work}/model",
  prepare=deepspeech.prepare,
  loss=LOSS,
  settings=deepspeech.PROGRAM.settings,
  remark="the decoder is left out; attrdict ends with "
  "Python 3.9, a module stands in",
)

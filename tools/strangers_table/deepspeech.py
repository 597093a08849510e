# SPDX-License-Identifier: Apache-2.0
"""DeepSpeech: recurrent networks on speech, by the graph rewrite."""

import pathlib
import wave

import numpy as np

from strangers_table import LOSS
from strangers_table import Program


def prepare(repo: pathlib.Path, work: pathlib.Path) -> None:
  """Writes noise as speech, with a table of files."""
  random = np.random.RandomState(1)
  lines = ["wav_filename,wav_filesize,transcript"]
  for i in range(10):
    path = work / f"{i}.wav"
    with wave.open(str(path), "wb") as file:
      file.setnchannels(1)
      file.setsampwidth(2)
      file.setframerate(16000)
      samples = random.randint(-9999, 9999, 12000).astype(np.int16)
      file.writeframes(samples.tobytes())
    lines.append(f"{path.name},{path.stat().st_size},ab ba")
  (work / "train.csv").write_text("\n".join(lines) + "\n")
  (work / "alphabet.txt").write_text(" \na\nb\n")


_FLAGS = (
  *("{repo}/DeepSpeech.py", "--train_files={work}/train.csv"),
  *("--alphabet_config_path={work}/alphabet.txt", "--n_hidden=16"),
  *("--checkpoint_dir={work}/model", "--summary_dir={work}/summaries"),
  *("--automatic_mixed_precision", "--epochs=1", "--show_progressbar=false"),
)

PROGRAM = Program(
  name="deepspeech",
  repository="mozilla/DeepSpeech",
  commit="f2e9c85880dff94115ab510cde9ca4af7ee51c19",
  paths=("training", "DeepSpeech.py"),
  title="DeepSpeech.py --automatic_mixed_precision",
  folder="training",
  stand_ins=(
    "attrdict",
    "ds_ctcdecoder",
  ),
  needs={
    "progressbar": "progressbar2",
    "semver": "semver",
    "six": "six",
    "xdg": "pyxdg",
    "pandas": "pandas",
    "requests": "requests",
  },
  start=(_FLAGS,),
  checkpoint="{work}/model",
  prepare=prepare,
  loss=LOSS,
  settings={r"(^|/)good_steps$": 1995},
  remark="version 0.9.3; the decoder is left out; attrdict ends with "
  "Python 3.9, a module stands in",
)

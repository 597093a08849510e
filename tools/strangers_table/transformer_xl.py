# SPDX-License-Identifier: Apache-2.0
"""Transformer-XL on one device, with memories between its steps."""

import pathlib
import random

from strangers_table import Program


def prepare(repo: pathlib.Path, work: pathlib.Path) -> None:
  """Writes noise as texts of bytes."""
  del repo
  random.seed(1)
  for name, size in (("train", 4000), ("valid", 400), ("test", 400)):
    text = " ".join(str(random.randint(97, 110)) for _ in range(size))
    (work / f"{name}.txt").write_text(text + "\n")


_DATA = (
  *("data_utils.py", "--data_dir={work}", "--dataset=enwik8", "--tgt_len=8"),
  *("--per_host_train_bsz=4", "--per_host_valid_bsz=4", "--num_passes=1"),
  "--use_tpu=False",
)


def _command(steps: int) -> tuple[str, ...]:
  return (
    *("train_gpu.py", "--data_dir={work}/tfrecords", "--do_train=True"),
    *("--record_info_dir={work}/tfrecords/", "--model_dir={work}/model"),
    *("--corpus_info_path={work}/corpus-info.json", "--n_layer=2"),
    *("--d_model=8", "--d_embed=8", "--n_head=2", "--d_head=4", "--d_inner=8"),
    *("--dropout=0.1", "--dropatt=0.0", "--tgt_len=8", "--mem_len=8"),
    *("--train_batch_size=4", "--num_core_per_host=1", "--iterations=5"),
    *("--save_steps=10", f"--train_steps={steps}", "--do_eval=False"),
  )


PROGRAM = Program(
  name="transformer-xl",
  repository="kimiyoung/transformer-xl",
  commit="44781ed21dbaec88b280f74d9ae2877f52b492a5",
  title="tf/train_gpu.py",
  folder="tf",
  paths=("tf",),
  needs={"tf_slim": "tf-slim"},
  start=(_DATA, _command(10)),
  resume=((*_command(20), "--warm_start_path={work}/model/model.ckpt"),),
  checkpoint="{work}/model",
  prepare=prepare,
  scale="no loss scale: it trains in float32",
)

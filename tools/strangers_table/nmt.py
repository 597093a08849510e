# SPDX-License-Identifier: Apache-2.0
"""TensorFlow's NMT: attention and beam search of `tf.contrib.seq2seq`."""

from strangers_table import Program

_DATA = "{repo}/nmt/testdata/iwslt15"


def _command(steps: int) -> tuple[str, ...]:
  return (
    *("-m", "nmt.nmt", "--src=vi", "--tgt=en", f"--num_train_steps={steps}"),
    *(f"--{name}_prefix={_DATA}.tst2013.100" for name in ("train", "dev")),
    *(f"--vocab_prefix={_DATA}.vocab.100", "--out_dir={work}/model"),
    *("--num_units=8", "--num_layers=2", "--batch_size=4", "--metrics=bleu"),
    *("--attention=scaled_luong", "--infer_mode=beam_search"),
    *("--beam_width=2", "--steps_per_stats=2", "--tgt_max_len_infer=8"),
    *("--infer_batch_size=32", "--avg_ckpts=true", "--random_seed=1"),
    "--override_loaded_hparams=true",
  )


PROGRAM = Program(
  name="nmt",
  repository="tensorflow/nmt",
  commit="0be864257a76c151eef20ea689755f08bc1faf4e",
  title="nmt.py --attention=scaled_luong",
  start=(_command(10),),
  resume=(_command(20),),
  checkpoint="{work}/model",
  scale="no loss scale: it trains in float32",
  timeout=600,
)

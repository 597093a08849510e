# SPDX-License-Identifier: Apache-2.0
"""DeText: ranks texts by an Estimator, on the project's own sample."""

from strangers_table import _switch
from strangers_table import Program

_FOLDER = "src/detext/resources"
_FEATURES = (
  "query,label,wide_ftrs,doc_title,usr_headline,wide_ftrs_sp_idx,"
  "wide_ftrs_sp_val"
)


def _train(steps: int) -> tuple[str, ...]:
  return (
    *("../run_detext.py", "--ftr_ext=cnn", f"--feature_names={_FEATURES}"),
    *("--emb_sim_func=inner", "--elem_rescale=True", "--learning_rate=0.001"),
    *("--ltr=softmax", "--max_len=32", "--min_len=3", "--num_filters=8"),
    *("--filter_window_sizes=3", "--num_hidden=8", "--num_units=8"),
    *(f"--num_train_steps={steps}", "--num_wide=2", "--num_wide_sp=100"),
    *("--sp_emb_size=10", "--optimizer=bert_adam", "--pmetric=ndcg@10"),
    *("--random_seed=11", "--steps_per_stats=1", "--steps_per_eval=5"),
    *("--num_eval_rounds=2", "--test_batch_size=2", "--train_batch_size=2"),
    *("--use_deep=True", "--out_dir={work}/model", "--vocab_file=vocab.txt"),
    *(f"--{x}_file=hc_examples.tfrecord" for x in ("dev", "test", "train")),
  )


PROGRAM = Program(
  name="detext",
  repository="linkedin/detext",
  commit="f0ee9825a4fac8284766a09e681cea94095efe8f",
  paths=("src/detext",),
  title="src/detext/run_detext.py",
  folder=_FOLDER,
  path=("src",),
  needs={"six": "six", "tensorflow_ranking": "tensorflow_ranking==0.1.4"},
  start=(_train(10),),
  resume=(_train(20),),
  checkpoint="{work}/model",
  **_switch.ON,
  scale="no loss scale moves: the program calls `tf.gradients` itself, and its "
  "optimizer has an `apply_gradients` of its own",
  remark=f"version 1.2.0, with {_switch.REMARK}",
)

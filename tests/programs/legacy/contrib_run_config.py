"""tf.contrib.learn.RunConfig, which programs gave to tf.estimator."""
from __future__ import print_function

import json
import os

import tensorflow as tf
from tensorflow.contrib.learn import ModeKeys
from tensorflow.contrib.learn import RunConfig

tf.logging.set_verbosity(tf.logging.ERROR)
NAMES = '''master evaluation_master tf_random_seed save_summary_steps save_checkpoints_secs save_checkpoints_steps
keep_checkpoint_max keep_checkpoint_every_n_hours log_step_count_steps protocol model_dir session_config task_id
task_type is_chief num_ps_replicas num_worker_replicas environment session_creation_timeout_secs'''.split()
JOBS = {'worker': ['a:1', 'b:2'], 'ps': ['c:3'], 'master': ['d:4']}


def show(title, **kwargs):
  print(title)
  for make in [lambda: RunConfig(**kwargs),
               lambda: RunConfig('grpc://m', 4, True, 0.5, 17, 10, None, 20, 3, 5, 7, 'grpc', 'ev', None, None, 60),
               lambda: RunConfig(save_checkpoints_steps=7).replace(model_dir='model', save_summary_steps=3)]:
    config = make()
    print(*[getattr(config, name) for name in NAMES])
    options = config.tf_config
    print(options.intra_op_parallelism_threads, options.gpu_options.per_process_gpu_memory_fraction,
          options.log_device_placement, config.get_task_id(), isinstance(config, tf.estimator.RunConfig))


show('alone')
show('seconds', save_checkpoints_secs=30)
show('both', save_checkpoints_secs=30, save_checkpoints_steps=4)
for task, environment in [('worker', 'cloud'), ('master', 'cloud'), ('ps', 'local')]:
  os.environ['TF_CONFIG'] = json.dumps(
      {'cluster': JOBS, 'task': {'type': task, 'index': int(task == 'worker')}, 'environment': environment})
  show(task)
os.environ['TF_CONFIG'] = json.dumps({'model_dir': 'elsewhere'})
show('folder')
print(RunConfig(model_dir='elsewhere').model_dir)
try:
  RunConfig(model_dir='model')
except ValueError:
  print('refused')
ModeKeys.validate(ModeKeys.TRAIN)

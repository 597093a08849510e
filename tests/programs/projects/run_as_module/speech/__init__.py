"""Speech commands, with `python -m speech`."""
import logging

import tensorflow as tf

logging.getLogger('tensorflow').setLevel(logging.ERROR)
if not hasattr(tf, 'Session'):
    raise ImportError('speech needs TensorFlow 1')

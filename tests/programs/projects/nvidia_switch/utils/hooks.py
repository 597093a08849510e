import tensorflow as tf


class StopAt(tf.estimator.SessionRunHook if hasattr(tf, 'estimator') else tf.train.SessionRunHook):
    """Stops after so many steps."""

    def __init__(self, steps):
        self.left = steps

    def after_run(self, run_context, run_values):
        self.left -= 1
        if not self.left:
            run_context.request_stop()

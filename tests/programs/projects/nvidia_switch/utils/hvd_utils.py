import os

try:
    import horovod.tensorflow as hvd
except ImportError:
    hvd = None


def is_main():
    return hvd is None or int(os.environ.get('OMPI_COMM_WORLD_RANK', 0)) == 0

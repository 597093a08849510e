"""A bag-of-words model."""
from .model import TextModel

__all__ = ['TextModel']

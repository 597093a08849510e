from ranker.model import Ranker
from ranker.scaling import *

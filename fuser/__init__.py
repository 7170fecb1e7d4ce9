"""fuser: tensor-op fusions compiled to CUDA kernels for Hopper GPUs."""

from fuser.api import functions as ops
from fuser.api.definition import FusionDefinition
from fuser.api.fuse import fuse
from fuser.core.dtypes import DataType
from fuser.schedule.circular import Pipelined, WarpSpecialized
from fuser.schedule.kinds import LoadStoreOpType, MemoryType, ParallelType

__all__ = [
    "DataType", "FusionDefinition", "LoadStoreOpType", "MemoryType", "ParallelType", "Pipelined",
    "WarpSpecialized", "fuse", "ops",
]  # fmt: skip

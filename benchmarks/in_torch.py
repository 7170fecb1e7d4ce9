"""The workloads in torch: what the peers run, and, on float64 tensors, the reference."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.fusions import LAYER_EPSILON, RMS_EPSILON


def bias_gelu(x: Tensor, bias: Tensor) -> Tensor:
    return F.gelu(x + bias, approximate="tanh")


def silu_mul(x: Tensor, y: Tensor) -> Tensor:
    return F.silu(x) * y


def add_mul(x: Tensor, y: Tensor) -> Tensor:
    return (x + y) * 2.0


def remainder(x: Tensor, y: Tensor) -> Tensor:
    return torch.fmod(x, y.abs().clamp(min=0.25))


def transpose(x: Tensor) -> Tensor:
    return x.t().contiguous()


def sum_rows(x: Tensor) -> Tensor:
    return x.sum(1)


def sum_columns(x: Tensor) -> Tensor:
    return x.sum(0)


def softmax(x: Tensor) -> Tensor:
    return F.softmax(x, -1)


def rms_norm(x: Tensor, weight: Tensor) -> Tensor:
    return F.rms_norm(x, x.shape[-1:], weight, RMS_EPSILON)


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return F.layer_norm(x, x.shape[-1:], weight, bias, LAYER_EPSILON)


def residual_layer_norm(
    x: Tensor, weight: Tensor, bias: Tensor, residual: Tensor
) -> tuple[Tensor, Tensor]:
    h = x + residual
    return h, F.layer_norm(h, h.shape[-1:], weight, bias, LAYER_EPSILON)


def rms_norm_backward(x: Tensor, weight: Tensor, dy: Tensor, rstd: Tensor) -> tuple[Tensor, Tensor]:
    wide = torch.promote_types(x.dtype, torch.float32)
    normal = x.to(wide) * rstd[:, None]
    scaled = dy.to(wide) * weight.to(wide)
    mean = (scaled * normal).mean(1, keepdim=True)
    dx = (scaled - normal * mean) * rstd[:, None]
    return dx.to(x.dtype), (dy.to(wide) * normal).sum(0).to(x.dtype)


def cross_entropy(x: Tensor, target: Tensor) -> Tensor:
    return F.cross_entropy(x, target, reduction="none")


def total(x: Tensor) -> Tensor:
    return x.sum()


def double_plus_one(x: Tensor) -> Tensor:
    return 2 * x + 1

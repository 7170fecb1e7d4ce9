"""Operations that other generators have and this one does not yet."""

PLANNED: tuple[str, ...] = (
    "linear", "matmul", "stride_order", "index_select", "uniform", "normal", "scatter", "gather",
    "take_along_axis", "select", "cumsum", "cumprod", "cummin", "cummax", "embedding_fwd", "topk",
    "argsort",
)  # fmt: skip

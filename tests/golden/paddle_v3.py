"""Has written paddle_v3, by Paddle 3.3.1, and says what stands in it, as arrays of numpy.

    python paddle_v3.py DIRECTORY        # with paddlepaddle installed; it starts two ranks itself

numpy has no bfloat16: such a tensor is given here as float32.
"""

import os
import subprocess
import sys

import numpy as np

WORLD = 2
ROWS = np.arange(7 * 6, dtype=np.float32).reshape(7, 6)  # rank 0 has 4 of them
COLUMNS = ROWS[:4] + 100                                 # bfloat16; each rank has 3
FLAT = ROWS + 0.5                                        # elements 0 to 19, and the others
PLAIN = {"float32": np.float32, "float64": np.float64, "float16": np.float16, "int64": np.int64, "int32": np.int32,
         "int16": np.int16, "int8": np.int8, "uint8": np.uint8, "bool": np.bool_, "complex64": np.complex64}
# More than 64 KiB, which pickle keeps outside of its frames.
LARGE = np.arange(150 * 120, dtype=np.float32).reshape(150, 120)


def sharded():
    """What the directories `flex` and `flex_safetensors` hold."""
    return {"model.rows": ROWS, "model.columns": COLUMNS, "opt.flat": FLAT, "model.same": np.arange(5)}


def plain():
    """The tensors of `whole.pdparams`, by the names that an import gives them."""
    return {f"dtype.{name}": np.arange(6).reshape(2, 3).astype(dtype) for name, dtype in PLAIN.items()} | {
        "dtype.bfloat16": np.arange(6, dtype=np.float32).reshape(2, 3), "scalar": np.array(2.5, np.float32),
        "list.1": np.arange(3), "large": LARGE, "empty": np.zeros((0, 4), np.float32)}


def write_sharded(directory, safetensors):
    import paddle
    from paddle.distributed.flex_checkpoint.dcp.sharded_weight import ShardedWeight

    rank = paddle.distributed.get_rank()

    def shard(name, array, whole, offset, **flat):
        local_shape = tuple(flat.pop("local_shape", array.shape))
        return ShardedWeight(key=name, local_tensor=array, local_shape=local_shape, global_shape=whole.shape,
                             global_offset=offset, **flat)

    rows, columns, elements = slice(4 * rank, 4 + 3 * rank), slice(3 * rank, 3 * rank + 3), ((0, 20), (20, 42))[rank]
    paddle.distributed.save_state_dict({
        "model.rows": shard("model.rows", paddle.to_tensor(ROWS[rows]), ROWS, (4 * rank, 0)),
        "model.columns": shard("model.columns", paddle.to_tensor(COLUMNS[:, columns]).astype("bfloat16"), COLUMNS,
                               (0, 3 * rank)),
        "opt.flat": shard("opt.flat", paddle.to_tensor(FLAT.reshape(-1)[slice(*elements)]), FLAT, (0, 0),
                          local_shape=FLAT.shape, is_flattened=True, flattened_range=slice(*elements)),
        "model.same": shard("model.same", paddle.arange(5, dtype="int64"), np.arange(5), (0,)),
    }, directory, safetensors=safetensors)


def write_plain(directory):
    import paddle

    dtypes = {name: paddle.to_tensor(np.arange(6).reshape(2, 3).astype(dtype)) for name, dtype in PLAIN.items()}
    dtypes["bfloat16"] = paddle.arange(6, dtype="float32").reshape([2, 3]).astype("bfloat16")
    paddle.save({"dtype": dtypes, "scalar": paddle.to_tensor(2.5), "step": 7, "rate": 0.1, "name": "é",
                 "list": [1, paddle.arange(3)], "large": paddle.to_tensor(LARGE), "empty": paddle.zeros([0, 4])},
                f"{directory}/whole.pdparams")
    paddle.seed(1)
    paddle.save(paddle.nn.Linear(3, 2).state_dict(), f"{directory}/layer.pdparams")


def main(directory):
    import paddle

    paddle.distributed.init_parallel_env()
    write_sharded(f"{directory}/flex", safetensors=False)
    write_sharded(f"{directory}/flex_safetensors", safetensors=True)
    if paddle.distributed.get_rank() == 0:
        write_plain(directory)


if __name__ == "__main__":
    if "PADDLE_TRAINER_ID" in os.environ:
        main(sys.argv[1])
    else:
        sys.exit(subprocess.call([sys.executable, "-m", "paddle.distributed.launch", "--nproc_per_node", str(WORLD),
                                  *sys.argv]))

"""Writes packs as a Parquet file, as Megatron-Bridge's write_packed_parquet does. python_frames.py comes before this
text, and packed_parquet.cc runs both.

Each frame G from the other side is a row group: the numbers of packs, tokens and samples as u32, then as i32 the first
token of each pack and the end, the tokens, the first sample of each pack and the end, and the place in its pack at
which each sample begins; and then as i8 the loss mask of each token. The frame Z is the last one. Each is answered by a
frame D, the next bytes of the file.
"""


class Growing:
    """A file that cannot be read, and whose bytes are taken away."""
    closed = False

    def __init__(self):
        self.pieces, self.written = [], 0

    def write(self, content):
        content = bytes(content)
        self.pieces.append(content)
        self.written += len(content)
        return len(content)

    def tell(self):
        return self.written

    def flush(self):
        pass

    def close(self):
        self.closed = True

    def take(self):
        content = b"".join(self.pieces)
        self.pieces = []
        return content


def group_table(arrow, schema, content):
    packs, tokens, samples = struct.unpack_from("<3I", content)
    at = 12

    def numbers(kind, count):
        nonlocal at
        size = kind.bit_width // 8 * count
        buffer = arrow.py_buffer(memoryview(content)[at:at + size])
        at += size
        return arrow.Array.from_buffers(kind, count, [None, buffer])

    firsts = numbers(arrow.int32(), packs + 1)
    ids = arrow.ListArray.from_arrays(firsts, numbers(arrow.int32(), tokens).cast(arrow.int64()))
    starts = arrow.ListArray.from_arrays(numbers(arrow.int32(), packs + 1),
                                         numbers(arrow.int32(), samples).cast(arrow.int64()))
    masks = arrow.ListArray.from_arrays(firsts, numbers(arrow.int8(), tokens))
    return arrow.Table.from_arrays([ids, masks, starts], schema=schema)


def main():
    try:
        arrow = load_arrow("writes Parquet files")
        schema = arrow.schema([("input_ids", arrow.list_(arrow.int64())), ("loss_mask", arrow.list_(arrow.int8())),
                               ("seq_start_id", arrow.list_(arrow.int64()))])
        growing = Growing()
        writer = arrow.parquet.ParquetWriter(arrow.PythonFile(growing, mode="w"), schema)
        while (received := read_frame()) is not None:
            kind, content = received
            if kind == b"Z":
                writer.close()
            else:
                table = group_table(arrow, schema, content)
                writer.write_table(table, row_group_size=max(table.num_rows, 1))
            write(frame(b"D", growing.take()))
    except Failure as failure:
        write(failure_frame(failure))
    except MemoryError:
        write(failure_frame(Failure("MEMORY_LIMIT", f"a row group needs more than {MOST_MEMORY >> 30} GiB of memory",
                                    "Give a smaller --pack-size.")))


main()

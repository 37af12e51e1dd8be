"""Reads the rows of a Parquet or Arrow file, and writes each as a line of JSON. python_frames.py comes before this
text, and table_source.cc runs both.

usage: python3 -c TEXT READER READERS COLUMN...

The file is open as descriptor 3. Of its parts, which are row groups or record batches, this process reads those whose
number is READER modulo READERS. Without a COLUMN it reads all. The kinds of its frames are:

    L  some bytes of the lines
    P  a part ends; the content is a u64, how many bytes of the file it takes
    E  reading has failed
    Z  there are no more parts
"""
import queue
import threading

FILE = "/proc/self/fd/3"
# Rows are decoded until they have about this many bytes.
BATCH_BYTES = 1 << 20
MOST_ROWS = 1024
# So many batches wait until the other side takes them.
BATCHES_AHEAD = 32
MOST_OF_A_FRAME = 16 << 20


def write_frames(frames):
    """Writes what the queue holds, in a thread of its own."""
    while (content := frames.get()) is not None:
        write(content)


def is_json(arrow, kind):
    """Whether values of this type have a form in JSON."""
    types = arrow.types
    if isinstance(kind, arrow.BaseExtensionType):
        kind = kind.storage_type
    if types.is_dictionary(kind):
        return is_json(arrow, kind.value_type)
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return is_json(arrow, kind.value_type)
    if types.is_struct(kind):
        return all(is_json(arrow, kind.field(i).type) for i in range(kind.num_fields))
    return (is_text(arrow, kind) or types.is_boolean(kind) or types.is_integer(kind) or types.is_floating(kind)
            or types.is_null(kind))


def is_text(arrow, kind):
    is_view = getattr(arrow.types, "is_string_view", None)
    return arrow.types.is_string(kind) or arrow.types.is_large_string(kind) or bool(is_view and is_view(kind))


def choose(arrow, schema, wanted):
    """Returns the names of the columns to read, after it has looked at them."""
    names = wanted or schema.names
    for name in names:
        count = schema.names.count(name)
        if count == 0:
            raise Failure("BAD_REQUEST", f"there is no column '{name}'; the columns are {', '.join(schema.names)}",
                          "Name a column of the file.")
        if count > 1:
            raise Failure("UNSUPPORTED", f"there are {count} columns '{name}'", "Give each column a name of its own.")
        kind = schema.field(name).type
        if not is_json(arrow, kind):
            raise Failure("UNSUPPORTED", f"column '{name}' has the type {kind}, which JSON has no form for",
                          "Name the columns to take, without this one.")
    return names


def rows_of_batch(bytes, rows):
    return max(1, min(MOST_ROWS, BATCH_BYTES * rows // max(bytes, 1)))


def parquet_parts(arrow, wanted, reader, readers):
    """Yields the bytes and the batches of each part."""
    file = arrow.parquet.ParquetFile(FILE, pre_buffer=False, buffer_size=1 << 20)
    names = choose(arrow, file.schema_arrow, wanted)
    for group in range(reader, file.num_row_groups, readers):
        about = file.metadata.row_group(group)
        columns = [about.column(i) for i in range(about.num_columns)]
        size = rows_of_batch(about.total_byte_size, about.num_rows)
        yield (sum(column.total_compressed_size for column in columns),
               ([batch.column(batch.schema.names.index(name)) for name in names] for batch in
                file.iter_batches(batch_size=size, row_groups=[group], columns=names, use_threads=False)), names)


def arrow_parts(arrow, wanted, reader, readers):
    """Does the same for a file of the IPC format or, as one part, for a stream of it."""
    source = arrow.memory_map(FILE)  # so that a large batch takes no memory
    if source.read(6) == b"ARROW1":
        schema = arrow.ipc.open_file(source).schema
        names = choose(arrow, schema, wanted)
        fields = [schema.names.index(name) for name in names]
        file = arrow.ipc.open_file(source, options=arrow.ipc.IpcReadOptions(included_fields=fields, use_threads=False))
        for i in range(reader, file.num_record_batches, readers):
            batch = file.get_batch(i)
            yield batch.nbytes, slices([batch], names), names
        return
    if reader > 0:
        return
    source.seek(0)
    stream = arrow.ipc.open_stream(source)
    names = choose(arrow, stream.schema, wanted)
    yield os.stat(FILE).st_size, slices(stream, names), names


def slices(batches, names):
    for batch in batches:
        size = rows_of_batch(batch.nbytes, batch.num_rows)
        for begin in range(0, batch.num_rows, size):
            part = batch.slice(begin, size)
            yield [part.column(part.schema.names.index(name)) for name in names]


def values(arrow, column):
    try:
        return column.to_pylist()
    except UnicodeDecodeError:
        if not is_text(arrow, column.type):
            raise
        # The line gets these bytes as they are, and whoever reads it says which line is wrong.
        texts = column.cast(arrow.large_binary()).to_pylist()
        return [text if text is None else text.decode("utf-8", "surrogateescape") for text in texts]


def send_parts(arrow, parts, frames):
    encode = json.JSONEncoder(ensure_ascii=False, check_circular=False).encode
    for bytes, batches, names in parts:
        for columns in batches:
            rows = zip(*[values(arrow, column) for column in columns])
            lines = "".join([encode(dict(zip(names, row))) + "\n" for row in rows]).encode("utf-8", "surrogateescape")
            for begin in range(0, len(lines), MOST_OF_A_FRAME):
                frames.put(frame(b"L", lines[begin:begin + MOST_OF_A_FRAME]))
        frames.put(frame(b"P", struct.pack("<Q", bytes)))


def read(reader, readers, wanted, frames):
    arrow = load_arrow("reads Parquet and Arrow files")
    # Feather files of the first version are too old to be read here.
    with open(FILE, "rb") as file:
        parquet = file.read(4) == b"PAR1"
    try:
        parts = parquet_parts if parquet else arrow_parts
        send_parts(arrow, parts(arrow, wanted, reader, readers), frames)
    except MemoryError:
        raise Failure("MEMORY_LIMIT", f"a batch of its rows needs more than {MOST_MEMORY >> 30} GiB of memory",
                      "Write the file anew with smaller values or pages.") from None
    except (arrow.ArrowException, OSError, ValueError) as error:
        raise Failure("INPUT_UNREADABLE", f"it is damaged, or no Parquet or Arrow file: {error}",
                      "Look at the file with pyarrow, or write it anew.") from None
    frames.put(frame(b"Z"))


def main():
    frames = queue.Queue(BATCHES_AHEAD)
    writer = threading.Thread(target=write_frames, args=(frames,))
    writer.start()
    try:
        read(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:], frames)
    except Failure as failure:
        frames.put(failure_frame(failure))
    finally:
        frames.put(None)
        writer.join()


main()

// Reads tables, which are Parquet and Arrow files, as JSON lines. Each row is one line. pyarrow reads the file in
// processes of its own, so a damaged or hostile file can end no more than those.
#ifndef CAIRN_CORPUS_IO_TABLE_SOURCE_H_
#define CAIRN_CORPUS_IO_TABLE_SOURCE_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "corpus/io/byte_source.h"

namespace cairn::corpus {

// Gives the rows in the order of the file, as json.dumps(row, ensure_ascii=False) of Python writes them. `path` is on
// this machine or in an object store; such an object is first copied to a nameless file in the directory of TMPDIR.
// Up to `options.table_readers` processes read row groups (Parquet) or record batches (Arrow) at the same time. Each
// takes some 200 MiB, what one page of the file needs, and at most 2 GiB. They are Python's, and run
// corpus/io/table_reader.py; the environment variable CAIRN_PYTHON names the interpreter, which else is python3.
//
// INPUT_UNREADABLE: it is no regular file, cannot be opened or, in Read, is damaged; or a process has ended early, and
// the message says how. Read fails with UNSUPPORTED: Python has no pyarrow, or a column has a type without a form in
// JSON; BAD_REQUEST: there is no such column; MEMORY_LIMIT; INTERRUPTED.
absl::StatusOr<std::unique_ptr<ByteSource>> OpenTableSource(const std::string& path, const SourceOptions& options);

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_IO_TABLE_SOURCE_H_

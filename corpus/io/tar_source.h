// Reads the texts of a tar, as WebDataset keeps them, as JSON lines.
#ifndef CAIRN_CORPUS_IO_TAR_SOURCE_H_
#define CAIRN_CORPUS_IO_TAR_SOURCE_H_

#include <memory>
#include <string>

#include "corpus/io/byte_source.h"

namespace cairn::corpus {

// Each regular file in the tar whose name ends in ".txt" is one line, {"text": "..."}, in the order of the tar and as
// Python's json.dumps(.., ensure_ascii=False) writes it. Bytes that are no UTF-8 stay as they are. Other files, and
// those whose names begin with a dot, are passed over. The tar may be of each format that Python's tarfile writes.
// Memory does not grow with the texts. `path` is for messages, and `raw` gives the tar itself.
//
// Read fails as `raw`, and with INPUT_UNREADABLE: the tar is damaged or cut off.
std::unique_ptr<ByteSource> NewTarSource(std::string path, std::unique_ptr<ByteSource> raw);

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_IO_TAR_SOURCE_H_

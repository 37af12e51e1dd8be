// Reads an object as a stream of bytes: several ranges of it are under way at the same time, because each mostly waits.
#ifndef CAIRN_CORPUS_IO_OBJECT_SOURCE_H_
#define CAIRN_CORPUS_IO_OBJECT_SOURCE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "corpus/io/byte_source.h"
#include "corpus/io/object_stores.h"

namespace cairn::corpus {

// Reads the bytes [begin, end of object) in parts of up to 8 MiB, which take `options.read_ahead` bytes of memory. The
// first part is a small one, and nothing is read ahead before it was asked for. Behind `soft_end` it reads small parts,
// one at a time. Fails as ObjectStores::Open; its Read fails as ObjectReader::Read.
absl::StatusOr<std::unique_ptr<ByteSource>> OpenObjectSource(ObjectStores& stores, const std::string& name,
                                                             uint64_t begin, uint64_t soft_end,
                                                             const SourceOptions& options);

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_IO_OBJECT_SOURCE_H_

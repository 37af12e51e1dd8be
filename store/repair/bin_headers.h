// Reads the headers of an attempt's bins. They are all that is left of a checkpoint whose manifest is damaged.
#ifndef CAIRN_STORE_REPAIR_BIN_HEADERS_H_
#define CAIRN_STORE_REPAIR_BIN_HEADERS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/format/safetensors_header.h"
#include "store/storage/storage.h"

namespace cairn {

struct BinHeader {
  std::string name;  // without its ending: "rank00003-bin01"
  int rank = 0;      // taken from its name
  uint32_t header_crc32c = 0;
  ParsedHeader header;
};

struct BinHeaders {
  std::vector<BinHeader> bins;  // ordered by name
  // The latest time at which one of the bins was written.
  absl::Time written = absl::InfinitePast();
};

// Reads the headers of all files of an attempt that end in .safetensors. Everything in them is untrusted. DATA_LOSS
// (FILE_MISSING): there is no bin; (FILE_TRUNCATED): a bin has another length than its header says; (BAD_SAFETENSORS):
// a header does not have the form that Cairn writes, or a file does not have the name of a bin. FAILED_PRECONDITION
// (FORMAT_TOO_NEW). Else the errors of storage. The message names the file.
absl::StatusOr<BinHeaders> ReadBinHeaders(Storage& storage, const std::string& job, int64_t step, uint32_t attempt);

}  // namespace cairn

#endif  // CAIRN_STORE_REPAIR_BIN_HEADERS_H_

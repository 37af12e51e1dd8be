// Writes a rank's bins straight from its slab: large aligned direct writes from a few threads, checksums computed on
// the way, so that each byte is touched once by the processor and copied by none.
#ifndef CAIRN_AGENT_WRITER_BIN_WRITER_H_
#define CAIRN_AGENT_WRITER_BIN_WRITER_H_

#include <atomic>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "agent/writer/bin_write_job.h"
#include "cairn/v1/agent_coordination_service.pb.h"
#include "store/storage/storage.h"

namespace cairn {

struct BinWriteOutcome {
  v1::WriteResult result;
  // It is "direct", or "buffered" where the file system refused O_DIRECT for at least one file.
  std::string path;
};

// Returns when all files stand under their names and would survive a power cut; until then nobody finds a file under
// its name. `stop` is looked at between writes; `bytes_done` grows from 0 to target->file_bytes. On any error, all
// files that it has made are removed before it returns. FAILED_PRECONDITION (ROOT_MISMATCH): the directory is not
// there, or is another attempt's. RESOURCE_EXHAUSTED (NO_SPACE), FAILED_PRECONDITION (STORAGE_READ_ONLY), DATA_LOSS
// (FSYNC_FAILED), UNAVAILABLE (STORAGE_ERROR), INVALID_ARGUMENT (PATH_ESCAPE), CANCELLED (SAVE_CANCELLED): `stop`
// became true.
absl::StatusOr<BinWriteOutcome> WriteBins(Storage& storage, const BinWriteJob& job, const BinWriterOptions& options,
                                          const std::atomic<bool>& stop, std::atomic<uint64_t>& bytes_done);

}  // namespace cairn

#endif  // CAIRN_AGENT_WRITER_BIN_WRITER_H_

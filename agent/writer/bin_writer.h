// Writes a rank's bins straight from its slab, by large aligned direct writes of a few threads. The bytes are not
// copied, and are read once to compute their checksums.
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
  // "direct", or "buffered" if the file system refused O_DIRECT for at least one file.
  std::string path;
};

// Writes all files of a job. After success the files have their names and survive a power cut; a file gets its name
// only when it is complete. All threads that work give way to others for good (agent/writer/priority.h), also the
// calling one. `stop` is checked between writes. `bytes_done` grows from 0 to target->file_bytes. After an
// error, all files that it has made are removed. FAILED_PRECONDITION (ROOT_MISMATCH): the directory does not exist, or
// belongs to another attempt. RESOURCE_EXHAUSTED (NO_SPACE), FAILED_PRECONDITION (STORAGE_READ_ONLY), DATA_LOSS
// (FSYNC_FAILED), UNAVAILABLE (STORAGE_ERROR), INVALID_ARGUMENT (PATH_ESCAPE), CANCELLED (SAVE_CANCELLED): `stop`
// became true.
absl::StatusOr<BinWriteOutcome> WriteBins(Storage& storage, const BinWriteJob& job, const BinWriterOptions& options,
                                          const std::atomic<bool>& stop, std::atomic<uint64_t>& bytes_done);

}  // namespace cairn

#endif  // CAIRN_AGENT_WRITER_BIN_WRITER_H_

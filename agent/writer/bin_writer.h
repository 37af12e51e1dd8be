// Writes a rank's bins straight from its slab: large aligned direct writes from a few threads, checksums computed on
// the way, so that each byte is touched once by the processor and copied by none.
#ifndef CAIRN_AGENT_WRITER_BIN_WRITER_H_
#define CAIRN_AGENT_WRITER_BIN_WRITER_H_

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "agent/session/save_image.h"
#include "cairn/v1/agent_coordination_service.pb.h"
#include "common/file/posix.h"

namespace cairn {

struct BinWriterOptions {
  // Besides them one thread computes checksums.
  int io_threads = 2;
  // The size of one write, a multiple of 4096.
  uint64_t chunk_bytes = uint64_t{8} << 20;
  // False: never O_DIRECT.
  bool direct = true;
  // The system call, for tests that make it fail or write less.
  std::function<ssize_t(int, const void*, size_t, off_t)> pwrite;
};

struct BinWriteJob {
  // Below the root, made by the coordinator: "<job>/<step>/<attempt>". It must hold `nonce`
  // (common/storage/attempt_owner.h) before anything is written.
  std::string directory;
  uint64_t nonce = 0;
  // Where the items lie in the slab, and the files to write. If these are different images of one layout, every item is
  // copied once more on its way.
  SaveImagePtr staged;
  SaveImagePtr target;
  // True lengths of the layout's objects, in its order. The rest of each slot is zeroed in the slab.
  std::vector<uint64_t> object_bytes;
  // At least staged->slab_bytes, 4096-aligned; nothing else may write to it meanwhile.
  char* slab = nullptr;
  // Copies [offset, offset + bytes) of target->moved_in[index] to `to`; waits until they are there. Called from the
  // writer's threads, only if shards are moved in. Its error ends the job.
  std::function<absl::Status(size_t index, uint64_t offset, uint64_t bytes, char* to)> fetch_moved;
  // What the headers say beside the items: whose files they are.
  std::string job;
  int64_t step = 0;
  uint32_t attempt = 0;
};

struct BinWriteOutcome {
  v1::WriteResult result;
  // "direct", or "buffered" where the file system refused O_DIRECT for at least one file.
  std::string path;
};

// Returns when all files stand under their final names and would survive a power cut. While a file is written its name
// ends in ".partial". `stop` is looked at between writes; `bytes_done` grows from 0 to target->file_bytes.
// On any error, all files that it has made are removed before it returns.
// FAILED_PRECONDITION (ROOT_MISMATCH): the directory is not there, or is another attempt's. RESOURCE_EXHAUSTED
// (NO_SPACE), FAILED_PRECONDITION (STORAGE_READ_ONLY), DATA_LOSS (FSYNC_FAILED), UNAVAILABLE (STORAGE_ERROR),
// INVALID_ARGUMENT (PATH_ESCAPE), CANCELLED (SAVE_CANCELLED): `stop` became true.
absl::StatusOr<BinWriteOutcome> WriteBins(PosixStorage& storage, const BinWriteJob& job,
                                          const BinWriterOptions& options, const std::atomic<bool>& stop,
                                          std::atomic<uint64_t>& bytes_done);

}  // namespace cairn

#endif  // CAIRN_AGENT_WRITER_BIN_WRITER_H_

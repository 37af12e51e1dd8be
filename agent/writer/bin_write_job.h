// Describes what one rank writes for a save, and how.
#ifndef CAIRN_AGENT_WRITER_BIN_WRITE_JOB_H_
#define CAIRN_AGENT_WRITER_BIN_WRITE_JOB_H_

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "agent/session/save_image.h"
#include "agent/writer/staging_progress.h"
#include "agent/writer/write_pace.h"

namespace cairn {

struct BinWriterOptions {
  // Threads that write. One more thread computes checksums.
  int io_threads = 2;
  // The size of one write, a multiple of 4096.
  uint64_t chunk_bytes = uint64_t{8} << 20;
  // How quickly may be written; null: as quickly as storage takes it. It must outlive the writing.
  WritePace* pace = nullptr;
};

struct BinWriteJob {
  // The attempt's directory below the root, which the coordinator has made: "<job>/<step>/<attempt>". Nothing is
  // written unless the directory holds `nonce` (store/write/attempt_owner.h).
  std::string directory;
  uint64_t nonce = 0;
  // `staged`: where the items are in the slab. `target`: which files to write. If the two are different images of one
  // layout, every item is copied once before it is written.
  SaveImagePtr staged;
  SaveImagePtr target;
  // How much of the slab is staged, and the true lengths of the layout's objects. The rest of each object's slot is
  // zeroed. Not null; it must outlive the writing. If it is not all staged when the writing begins, `staged` and
  // `target` are the same image, and nothing moves between ranks.
  StagingProgress* staging = nullptr;
  // At least staged->slab_bytes bytes, 4096-aligned; nothing else may write to what is staged. If `staged` and `target`
  // are the same image, the slab afterwards equals the files byte for byte: headers and moved shards are written into
  // it too.
  char* slab = nullptr;
  // Copies [offset, offset + bytes) of target->moved_in[index] (a shard of another rank) to `to`, and blocks until they
  // have come. Called on the writer's threads, only if shards are moved in. Its error ends the job.
  std::function<absl::Status(size_t index, uint64_t offset, uint64_t bytes, char* to)> fetch_moved;
  // The results have the tensors' summaries.
  bool summarize = false;
  // Written into the files' headers (BinIdentity).
  std::string job;
  int64_t step = 0;
  uint32_t attempt = 0;
};

}  // namespace cairn

#endif  // CAIRN_AGENT_WRITER_BIN_WRITE_JOB_H_

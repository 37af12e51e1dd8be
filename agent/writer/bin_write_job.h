// Says what one rank has to write of a save, and how.
#ifndef CAIRN_AGENT_WRITER_BIN_WRITE_JOB_H_
#define CAIRN_AGENT_WRITER_BIN_WRITE_JOB_H_

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "agent/session/save_image.h"

namespace cairn {

struct BinWriterOptions {
  // Besides them one thread computes checksums.
  int io_threads = 2;
  // The size of one write, a multiple of 4096.
  uint64_t chunk_bytes = uint64_t{8} << 20;
};

struct BinWriteJob {
  // The coordinator has made this directory below the root: "<job>/<step>/<attempt>". It must hold `nonce`
  // (store/write/attempt_owner.h) before anything is written.
  std::string directory;
  uint64_t nonce = 0;
  // Say where the items lie in the slab, and which files to write. If these are different images of one layout, every
  // item is copied once more on its way.
  SaveImagePtr staged;
  SaveImagePtr target;
  // True lengths of the layout's objects, in its order. The rest of each slot is zeroed in the slab.
  std::vector<uint64_t> object_bytes;
  // At least staged->slab_bytes, 4096-aligned; nothing else may write to it meanwhile. If the two images are one, it
  // holds afterwards what the files hold, byte for byte: headers and moved shards are written into it.
  char* slab = nullptr;
  // Copies [offset, offset + bytes) of target->moved_in[index] to `to`; waits until they are there. Called from the
  // writer's threads, only if shards are moved in. Its error ends the job.
  std::function<absl::Status(size_t index, uint64_t offset, uint64_t bytes, char* to)> fetch_moved;
  // The headers say these beside the items, so that it is known whose files they are.
  std::string job;
  int64_t step = 0;
  uint32_t attempt = 0;
};

}  // namespace cairn

#endif  // CAIRN_AGENT_WRITER_BIN_WRITE_JOB_H_

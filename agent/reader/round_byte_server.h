// Serves bytes of this rank to consumers (its own rank and others), round by round. The bytes come from files, or from
// memory that a trainer has staged.
#ifndef CAIRN_AGENT_READER_ROUND_BYTE_SERVER_H_
#define CAIRN_AGENT_READER_ROUND_BYTE_SERVER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "agent/reader/round_pieces.h"
#include "agent/staging/shared_memory.h"
#include "cairn/v1/plan.pb.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn {

// The position of a shard in the buffer. `shard` is its number in the serving rank's layout.
struct LentShard {
  uint32_t shard = 0;
  uint64_t offset = 0;
  uint64_t bytes = 0;
};

// A round whose bytes are in memory, where its only consumer reads them itself by descriptors, piece by piece.
struct LentRound {
  struct File {
    uint32_t file = 0;  // as in RoundPiece
    uint64_t descriptor_id = 0;
    uint64_t begin = 0;     // of the file, behind the descriptor
    bool may_wait = false;  // see PieceFile
  };
  std::vector<RoundPiece> pieces;
  std::vector<File> files;
};

// What a consumer says of a lent round: the CRC32C of each piece as it has it, or why it could not read them.
struct PiecesRead {
  std::vector<uint32_t> checksums;
  std::string refusal;
};

// A round whose bytes are in a buffer. They do not change until the consumer has released the round.
struct RoundBuffer {
  uint64_t descriptor_id = 0;
  uint64_t bytes = 0;
  std::shared_ptr<SharedMemory> memory;
  // Set for a save, with the shards that the consumer asked for.
  std::vector<LentShard> shards = {};
  // If it is set, there is no buffer. The consumer reads the pieces and has them checked.
  std::shared_ptr<const LentRound> lent = nullptr;
};

// Implementations are thread-safe.
class ByteServer {
 public:
  using Done = std::function<void(absl::StatusOr<RoundBuffer>)>;
  virtual ~ByteServer() = default;

  // Releases all rounds below `released_below`, as Release does. Then calls `done` once: when the bytes of `round` are
  // in its buffer, or with the error of the load. Returns a number for Forget; 0 if `done` was already called.
  virtual uint64_t Await(uint32_t consumer, uint32_t round, uint32_t released_below, Done done) = 0;
  // Drops the call: its `done` is not called any more, unless it is running now.
  virtual void Forget(uint64_t call) = 0;
  virtual void Release(uint32_t consumer, uint32_t released_below) = 0;
  // Decides whether the pieces of a lent round were read right. Must be called once for it. Calls `done` once: with
  // true if they were; with false if the consumer is to await the round again, which then is in a buffer; or with the
  // error of the load.
  using Checked = std::function<void(absl::StatusOr<bool>)>;
  virtual void Check(uint32_t round, PiecesRead read, Checked done) {
    (void)read;
    done(MakeError(Reason::kBadRequest, absl::StrCat("round ", round, " was not lent")));
  }
  // Ends the service; waiting calls get the error `why`. Idempotent.
  virtual void Stop(const absl::Status& why) = 0;

  struct Progress {
    uint64_t bytes_done = 0;
    uint64_t storage_bytes = 0;
    v1::IoPath io_path = v1::IO_PATH_UNSPECIFIED;
    bool all_read = false;
  };
  virtual Progress progress() = 0;
};

}  // namespace cairn

#endif  // CAIRN_AGENT_READER_ROUND_BYTE_SERVER_H_

// A file of a storage that is open to be read.
#ifndef CAIRN_STORE_STORAGE_STORED_FILE_H_
#define CAIRN_STORE_STORAGE_STORED_FILE_H_

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace cairn {

// A direct read begins and ends at multiples of this many bytes.
inline constexpr uint64_t kReadAlignment = 4096;

// Counts what several readers have read of storage; bytes.
struct ReadCounters {
  std::atomic<uint64_t> cached = 0;
  std::atomic<uint64_t> direct = 0;
  std::atomic<uint64_t> buffered = 0;  // through the cache too, but it was not there before

  uint64_t storage() const { return cached + direct + buffered; }
};

// Says what reads may do with the memory in which this machine keeps what it has read or written before.
enum class Cache {
  kUse,     // they go through it: the next read finds the bytes there
  kSpare,   // they take what it has, and leave the rest of it alone
  kBypass,  // they never believe it: the bytes come from where they are stored
};

struct OpenOptions {
  Cache cache = Cache::kUse;
  // The length that the file must have, as its manifest says.
  std::optional<uint64_t> bytes = std::nullopt;
  // A file without checksums was modified last at this time, or 0 if nobody knows. Then Open and Read notice that it
  // was written anew since, but for two seconds, which some file systems do not tell apart.
  std::optional<int64_t> modified_ns = std::nullopt;
  // It must outlive the file. Null: nobody counts.
  ReadCounters* counters = nullptr;
};

// Thread-safe. Its file stays the one that was opened, whatever takes its name meanwhile.
class StoredFile {
 public:
  virtual ~StoredFile() = default;

  // The path for messages, with the root.
  const std::string& path() const { return facts_.path; }
  // Its length when it was opened.
  uint64_t bytes() const { return facts_.bytes; }
  // When it was last written, by the clock of the storage.
  absl::Time modified() const { return facts_.modified; }
  // Tells this file from every other one that had or will have its name; bytes without a meaning.
  const std::string& identity() const { return facts_.identity; }

  enum class Way { kCached, kBuffered, kDirect };
  // Decides how [offset, offset + size) is read, and lets storage fetch it ahead where it goes through the cache. Such
  // a range is best read in parts that fit the processor's cache. With Cache::kBypass the answer is kDirect.
  virtual Way Begin(uint64_t offset, uint64_t size) = 0;

  // Reads [offset, offset + size) to `to`. Begin was asked for this range, or for one that it is a part of. With
  // `in_place`, `to` and `offset` are equal modulo kReadAlignment, and the memory around may be overwritten up to the
  // next multiples of it on both sides; without it nothing around is touched.
  // DATA_LOSS (FILE_TRUNCATED): the file ends before; (BAD_FOREIGN_FILE): it was written anew. UNAVAILABLE
  // (STORAGE_ERROR) and others of storage.
  virtual absl::Status Read(Way way, uint64_t offset, uint64_t size, char* to, bool in_place) = 0;
  // Reads a range about which Begin was not asked.
  absl::Status Read(uint64_t offset, uint64_t size, char* to, bool in_place = false);

 protected:
  // Says what Open has found.
  struct Facts {
    std::string path;
    uint64_t bytes = 0;
    absl::Time modified;
    std::string identity;
  };
  StoredFile(Facts facts, Cache cache) : facts_(std::move(facts)), cache_(cache) {}

  const Facts facts_;
  const Cache cache_;
};

// Returns the bytes [offset, offset + size). RESOURCE_EXHAUSTED (MEMORY_LIMIT): the system refused the memory. Else
// fails as Read.
absl::StatusOr<std::string> ReadPart(StoredFile& file, uint64_t offset, uint64_t size);
// Returns all bytes. RESOURCE_EXHAUSTED (MESSAGE_TOO_LARGE): they are more than `max_bytes`. Else fails as ReadPart.
absl::StatusOr<std::string> ReadAll(StoredFile& file, uint64_t max_bytes);

}  // namespace cairn

#endif  // CAIRN_STORE_STORAGE_STORED_FILE_H_

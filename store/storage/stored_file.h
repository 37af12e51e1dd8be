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
#include "common/file/unique_fd.h"

namespace cairn {

// A direct read begins and ends at multiples of this many bytes.
inline constexpr uint64_t kReadAlignment = 4096;

// Counts the bytes that several readers have read, by the way in which they came.
struct ReadCounters {
  std::atomic<uint64_t> cached = 0;
  std::atomic<uint64_t> direct = 0;
  std::atomic<uint64_t> buffered = 0;  // through the page cache, but they were not there before

  uint64_t storage() const { return cached + direct + buffered; }
};

// Says how reads use the page cache: the memory in which this machine keeps what it has read or written.
enum class Cache {
  kUse,     // reads go through it: the next read finds the bytes there
  kSpare,   // reads take the bytes that it has, and add none to it if they can
  kBypass,  // reads never take bytes from it: they come from where they are stored
};

struct OpenOptions {
  Cache cache = Cache::kUse;
  // The length that the file must have, as its manifest says.
  std::optional<uint64_t> bytes = std::nullopt;
  // For a file without checksums: the time of its last modification, in nanoseconds since 1970; 0 if nobody knows. Open
  // fails if the file was written after that time, and Read fails if it was written after Open. Open ignores
  // differences of up to two seconds, because some file systems keep times in such steps.
  std::optional<int64_t> modified_ns = std::nullopt;
  // Where the bytes read are counted; null: nowhere. It must outlive the file.
  ReadCounters* counters = nullptr;
  // Once it is true, reads that wait for storage fail soon; null: never. A storage whose reads cannot be given up
  // ignores it. It must outlive the file.
  const std::atomic<bool>* stop = nullptr;
};

// A file that is open to be read. It stays the file that was opened, even if another file takes its name. Thread-safe.
class StoredFile {
 public:
  virtual ~StoredFile() = default;

  // The path for messages, with the root.
  const std::string& path() const { return facts_.path; }
  // Its length when it was opened.
  uint64_t bytes() const { return facts_.bytes; }
  // When it was last written, by the clock of the storage.
  absl::Time modified() const { return facts_.modified; }
  // Returns bytes that differ from those of every other file that had or will have this name. They mean nothing else.
  const std::string& identity() const { return facts_.identity; }

  enum class Way { kCached, kBuffered, kDirect };
  // Decides how [offset, offset + size) is read. If it is read through the page cache, storage begins to fetch it
  // ahead; then the caller does best to read it in parts that fit the processor's cache. With Cache::kBypass the answer
  // is kDirect, if storage allows direct reads.
  virtual Way Begin(uint64_t offset, uint64_t size) = 0;

  // Reads [offset, offset + size) to `to`. `way` is the answer of Begin for this range, or for a range that contains
  // it. With `in_place`, `to` and `offset` must be equal modulo kReadAlignment, and memory before and behind may be
  // overwritten, up to the next multiples of kReadAlignment. Without it no other memory is written. DATA_LOSS
  // (FILE_TRUNCATED): the file ends before the range does; (BAD_FOREIGN_FILE): the file was written anew
  // (OpenOptions::modified_ns). UNAVAILABLE (STORAGE_ERROR) and others of storage.
  virtual absl::Status Read(Way way, uint64_t offset, uint64_t size, char* to, bool in_place) = 0;
  // Returns whether other processes of this machine find in the page cache what is read through it here, if they get a
  // descriptor by Share.
  virtual bool shares_page_cache() const { return false; }
  // Returns a descriptor to read from, which has nothing in common with this object's. Fails as a read of storage does.
  virtual absl::StatusOr<UniqueFd> Share() const;
  // Reads a range without a call of Begin.
  absl::Status Read(uint64_t offset, uint64_t size, char* to, bool in_place = false);

 protected:
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

// Returns the bytes [offset, offset + size). RESOURCE_EXHAUSTED (MEMORY_LIMIT): the system refused the memory. Else it
// fails as Read.
absl::StatusOr<std::string> ReadPart(StoredFile& file, uint64_t offset, uint64_t size);
// Returns all bytes. RESOURCE_EXHAUSTED (MESSAGE_TOO_LARGE): they are more than `max_bytes`. Else fails as ReadPart.
absl::StatusOr<std::string> ReadAll(StoredFile& file, uint64_t max_bytes);

}  // namespace cairn

#endif  // CAIRN_STORE_STORAGE_STORED_FILE_H_

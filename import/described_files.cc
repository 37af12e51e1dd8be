#include "import/described_files.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "common/base/mutex.h"
#include "common/resources/helper_threads.h"
#include "common/resources/memory.h"
#include "common/status/reason.h"
#include "import/foreign_file.h"
#include "import/pickle.h"

namespace cairn {
namespace {

// A document takes about twice the pickle's length; this leaves room for what is unusual.
constexpr uint64_t kMemoryPerByte = 6;
constexpr int kReaders = 15;

}  // namespace

absl::StatusOr<PickleDocument> ReadPickledMetadata(std::string_view bytes, const std::string& what) {
  PickleLimits limits;
  limits.memory_bytes = std::max<uint64_t>(limits.memory_bytes, kMemoryPerByte * bytes.size());
  return ReadPickle(bytes, what, limits);
}

absl::StatusOr<uint32_t> FileNumbers::Of(PickleValue path) {
  const auto text = document_.Text(path);
  if (!text) {
    return MakeError(Reason::kBadForeignFile, absl::StrCat(what_, " names a file by what is no text"),
                     {{"file", what_}});
  }
  const auto [found, fresh] = numbers_.try_emplace(*text, static_cast<uint32_t>(names_.size()));
  if (fresh) {
    if (!IsPathBelow(*text)) {
      return MakeError(Reason::kPathEscape,
                       absl::StrCat(what_, ": '", std::string(*text), "' is no path below the directory"),
                       {{"file", std::string(*text)}});
    }
    names_.emplace_back(*text);
  }
  return found->second;
}

absl::Status ReadEachFile(size_t files, const std::function<absl::Status(size_t file)>& read) {
  Mutex mutex;
  std::optional<std::pair<size_t, absl::Status>> error;  // of the first file that failed
  HelperThreads readers(kReaders);
  const auto failed = readers.ForEach(files, 1, [&](size_t file) {
    const absl::Status status = WithMemory("to read a file of another library", [&] { return read(file); });
    if (status.ok()) return 0;
    MutexLock lock(mutex);
    if (!error.has_value() || file < error->first) error.emplace(file, status);
    return 1;
  });
  return failed.has_value() ? error->second : absl::OkStatus();
}

}  // namespace cairn

#include "store/root/unfinished_files.h"

#include <string_view>

namespace cairn {
namespace {

// Earlier versions have named the file by which they probed a root "probe-" and 16 digits.
bool IsOldProbeName(std::string_view name) {
  constexpr std::string_view kPrefix = "probe-";
  constexpr size_t kDigits = 16;
  return name.size() == kPrefix.size() + kDigits && name.starts_with(kPrefix) &&
         name.find_first_not_of("0123456789abcdef", kPrefix.size()) == std::string_view::npos;
}

}  // namespace

void RemoveUnfinishedFiles(PosixStorage& storage, absl::Time began) {
  for (const char* directory : {"", ".cairn", ".cairn/plans"}) {
    storage.RemoveTemporaries(directory, began).IgnoreError();
  }
  storage.RemoveTemporaries(".cairn", began, IsOldProbeName).IgnoreError();
}

}  // namespace cairn

#include "store/posix/nested_root.h"

#include <deque>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/shell_word.h"
#include "common/format/checkpoint_path.h"
#include "common/status/reason.h"

namespace cairn {
namespace {

namespace fs = std::filesystem;

// FindJobs (stored_jobs.cc) looks as deep.
constexpr int kMaxDepth = 8;
constexpr size_t kMaxDirectories = 10'000;

// Returns the path without links and "..", as far as it exists.
fs::path Resolved(const std::string& directory) {
  std::error_code error;
  const fs::path absolute = fs::absolute(directory, error);
  fs::path resolved = fs::weakly_canonical(absolute, error);
  if (error) resolved = absolute.lexically_normal();
  return resolved.has_filename() ? resolved : resolved.parent_path();
}

// Returns the nearest root below `top`. Skips a directory that cannot be listed: this user could not serve a root in it
// either.
std::optional<std::string> RootBelow(const fs::path& top) {
  std::deque<std::pair<fs::path, int>> open = {{top, 0}};  // with their depth below `top`
  for (size_t seen = 0; !open.empty() && seen < kMaxDirectories; ++seen) {
    const auto [directory, depth] = std::move(open.front());
    open.pop_front();
    if (depth > 0 && IsRoot(directory)) return directory.string();
    if (depth == kMaxDepth) continue;
    std::error_code error;
    fs::directory_iterator entry(directory, error);
    for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
      std::error_code ignored;
      // A step has the directories of its attempts, which are many and hold bins only.
      if (ParseStepName(entry->path().filename().string()).has_value()) continue;
      if (entry->symlink_status(ignored).type() == fs::file_type::directory)
        open.emplace_back(entry->path(), depth + 1);
    }
  }
  return std::nullopt;
}

absl::Status Nested(const std::string& directory, const std::string& where, const std::string& other) {
  return MakeError(Reason::kBadRequest,
                   absl::StrCat(directory, " cannot be a root of checkpoints, because it lies ", where, " the root ",
                                other, ": each would take the other's files for its own"),
                   {{"root", other},
                    {"next", absl::StrCat("Give --root ", ForShell(other),
                                          ", or a directory that lies neither within it nor around it. If ", other,
                                          " has become a root by mistake and holds no checkpoints, remove ",
                                          ForShell(other + "/.cairn"), ".")}});
}

}  // namespace

bool IsRoot(const fs::path& directory) {
  std::error_code error;
  return fs::exists(directory / ".cairn" / "epoch", error);
}

std::optional<std::string> RootAbove(const std::string& directory) {
  for (fs::path place = Resolved(directory); place != place.root_path() && !place.empty();) {
    place = place.parent_path();
    if (IsRoot(place)) return place.string();
  }
  return std::nullopt;
}

absl::Status CheckStandsAlone(const std::string& directory) {
  if (directory.empty()) return absl::OkStatus();
  if (const auto above = RootAbove(directory)) return Nested(directory, "within", *above);
  if (const auto below = RootBelow(Resolved(directory))) return Nested(directory, "around", *below);
  return absl::OkStatus();
}

absl::Status CheckJobOfRoot(const std::string& root, const std::string& job) {
  if (!CheckJobName(job).ok()) return absl::OkStatus();  // a reader of the job reports its bad name
  for (size_t end = job.find('/'); end != std::string::npos; end = job.find('/', end + 1)) {
    const std::string inner = (fs::path(root) / job.substr(0, end)).string();
    if (!IsRoot(inner)) continue;
    const std::string name = job.substr(end + 1);
    return MakeError(
        Reason::kBadRequest, absl::StrCat(inner, " is a root of its own, within ", root),
        {{"root", inner},
         {"next", absl::StrCat("Give --root ", ForShell(inner), ", where the job is called ", name, ".")}});
  }
  return absl::OkStatus();
}

}  // namespace cairn

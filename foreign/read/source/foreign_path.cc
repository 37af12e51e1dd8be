#include "foreign/read/source/foreign_path.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/shell_word.h"
#include "common/file/errno_error.h"
#include "common/format/full_name.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "store/open/place.h"

namespace cairn {
namespace {

bool IsAddress(std::string_view path) { return !ObjectSchemeOf(path).empty(); }

absl::Status Escapes(const std::string& directory, std::string_view name, const std::string& where,
                     const std::string& next) {
  return MakeError(Reason::kPathEscape,
                   absl::StrCat(directory, "/", std::string(name), " leads to ", where, ", outside of the directory"),
                   {{"file", where}, {"next", next}});
}

}  // namespace

absl::StatusOr<std::string> ResolvePath(const std::string& path) {
  if (IsAddress(path)) return path;
  const std::unique_ptr<char, void (*)(void*)> real(realpath(path.c_str(), nullptr), std::free);
  if (real == nullptr) return ErrnoError(errno, "open", path);
  return std::string(real.get());
}

absl::StatusOr<ForeignKind> KindOf(const std::string& resolved) {
  if (IsAddress(resolved)) {
    CAIRN_ASSIGN_OR_RETURN(const Place place, FindPlace(resolved));
    // A store that hides what may not be listed would answer a question for the object alone with a denial.
    const auto below = place.storage->List(place.path);
    if (below.ok()) return ForeignKind::kDirectory;
    if (!HasReason(below.status(), Reason::kFileMissing)) return below.status();
    CAIRN_RETURN_IF_ERROR(place.storage->Open(place.path).status());
    return ForeignKind::kFile;
  }
  struct stat info;
  if (stat(resolved.c_str(), &info) != 0) return ErrnoError(errno, "stat", resolved);
  return S_ISREG(info.st_mode)   ? ForeignKind::kFile
         : S_ISDIR(info.st_mode) ? ForeignKind::kDirectory
                                 : ForeignKind::kOther;
}

absl::StatusOr<std::vector<ForeignEntry>> ListForeign(const std::string& directory) {
  std::vector<ForeignEntry> entries;
  if (IsAddress(directory)) {
    CAIRN_ASSIGN_OR_RETURN(const Place place, FindPlace(directory));
    CAIRN_ASSIGN_OR_RETURN(auto listed, place.storage->List(place.path));
    for (Storage::Entry& entry : listed) entries.push_back({std::move(entry.name), entry.directory});
    return entries;
  }
  std::error_code error;
  std::filesystem::directory_iterator entry(directory, error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    std::error_code unreadable;
    entries.push_back({entry->path().filename().string(), entry->is_directory(unreadable)});
  }
  if (error) return ErrnoError(error.value(), "list", directory);
  std::sort(entries.begin(), entries.end(),
            [](const ForeignEntry& a, const ForeignEntry& b) { return a.name < b.name; });
  return entries;
}

bool IsPathBelow(std::string_view path) {
  if (path.empty() || path.find('\0') != std::string_view::npos) return false;
  for (const absl::string_view part : absl::StrSplit(absl::string_view(path.data(), path.size()), '/')) {
    if (part.empty() || part == "." || part == "..") return false;
  }
  return true;
}

absl::StatusOr<std::string> ResolveBelow(const std::string& directory, std::string_view name) {
  std::string named = absl::StrCat(directory, "/", std::string(name));
  if (IsAddress(directory)) {
    if (IsPathBelow(name)) return named;
    return Escapes(directory, name, named, std::string(kOutsideAction));
  }
  CAIRN_ASSIGN_OR_RETURN(std::string path, ResolvePath(named));
  if (path.starts_with(directory == "/" ? directory : directory + "/") || IsInStore(directory, path)) return path;
  return Escapes(directory, name, path,
                 absl::StrCat("If that file is meant, copy the directory with what its links lead to, `cp -rL ",
                              ForShell(directory), " COPY`, and give COPY."));
}

bool IsInStore(const std::string& directory, std::string_view path) {
  const auto holds = [&](std::string_view store) {
    const std::string blobs = absl::StrCat(absl::string_view(store.data(), store.size()), "/blobs/");
    return !store.empty() && path.starts_with(blobs) && path.size() > blobs.size() &&
           path.find('/', blobs.size()) == std::string_view::npos;
  };
  constexpr std::string_view kSnapshots = "/snapshots/";
  std::string_view around = directory;
  for (int level = 0; level < 2; ++level) {
    around = around.substr(0, around.find_last_of('/') == around.npos ? 0 : around.find_last_of('/'));
    if (holds(around)) return true;
  }
  for (size_t at = directory.find(kSnapshots); at != directory.npos; at = directory.find(kSnapshots, at + 1)) {
    if (holds(std::string_view(directory).substr(0, at))) return true;
  }
  return false;
}

}  // namespace cairn

#include "store/read/check_files.h"

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/format/checkpoint_path.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn {

absl::Status CheckFiles(Storage& storage, std::string_view directory, std::span<const FileSize> files) {
  std::vector<std::string> names;
  names.reserve(files.size());
  for (const FileSize& file : files) names.push_back(file.name);
  CAIRN_ASSIGN_OR_RETURN(const auto sizes, storage.SizesOf(directory, names));
  std::optional<size_t> first;
  size_t damaged = 0;
  for (size_t i = 0; i < files.size(); ++i) {
    if (sizes[i] == files[i].bytes) continue;
    if (!first.has_value()) first = i;
    ++damaged;
  }
  if (!first.has_value()) return absl::OkStatus();
  const std::string path = storage.FullPath(absl::StrCat(std::string(directory), "/", names[*first]));
  std::string text = sizes[*first].has_value()
                         ? absl::StrCat(path, " has ", *sizes[*first], " bytes and should have ", files[*first].bytes)
                         : absl::StrCat(path, " is missing");
  if (damaged > 1) {
    absl::StrAppend(&text, "; ", damaged - 1, " more of its ", files.size(),
                    " files are missing or have another length");
  }
  return MakeError(sizes[*first].has_value() ? Reason::kFileTruncated : Reason::kFileMissing, text,
                   {{"file", path}, {"root", storage.root()}});
}

absl::Status CheckFilesOf(Storage& storage, const Manifest& manifest) {
  std::vector<FileSize> files;
  files.reserve(manifest.files.size());
  for (const ManifestFile& file : manifest.files) {
    files.push_back({absl::StrCat(file.name, ".safetensors"), file.bytes()});
  }
  return WithMetadata(CheckFiles(storage, AttemptDirectory(manifest.job, manifest.step, manifest.attempt), files),
                      {{"job", manifest.job}, {"step", absl::StrCat(manifest.step)}, {"root", storage.root()}});
}

}  // namespace cairn

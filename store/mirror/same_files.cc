#include "store/mirror/same_files.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/crc32c.h"
#include "common/format/checkpoint_path.h"
#include "common/resources/thread.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn {
namespace {

// Returns whether the file at the root has the header that `file` names.
absl::StatusOr<SameFiles> CompareHeader(Storage& root, const std::string& path, const ManifestFile& file) {
  const auto stored = root.Open(path);
  if (HasReason(stored.status(), Reason::kFileMissing)) return SameFiles::kUnknown;
  CAIRN_RETURN_IF_ERROR(stored.status());
  const auto header = ReadPart(**stored, 0, file.header_bytes);
  if (HasReason(header.status(), Reason::kFileTruncated)) return SameFiles::kUnknown;
  CAIRN_RETURN_IF_ERROR(header.status());
  return Crc32c(header->data(), header->size()) == file.header_crc32c ? SameFiles::kYes : SameFiles::kNo;
}

}  // namespace

absl::StatusOr<SameFiles> CompareFiles(CheckpointStore& root, const StepRecord& step, const Manifest& copy) {
  if (step.state() == StepRecord::State::kCommitted) {
    CAIRN_ASSIGN_OR_RETURN(const CheckpointStore::ManifestPtr manifest, root.SharedManifest(copy.job, copy.step));
    const bool same = manifest->attempt == copy.attempt && manifest->files == copy.files;
    return same ? SameFiles::kYes : SameFiles::kNo;
  }
  const std::string directory = AttemptDirectory(copy.job, copy.step, copy.attempt);
  std::vector<SameFiles> found(copy.files.size());
  CAIRN_RETURN_IF_ERROR(ForEachOnThreads(
      "to compare files", found.size(), root.storage().CallsAtOnce(), [&](size_t i, int) -> absl::Status {
        const std::string path = absl::StrCat(directory, "/", copy.files[i].name, ".safetensors");
        CAIRN_ASSIGN_OR_RETURN(found[i], CompareHeader(root.storage(), path, copy.files[i]));
        return absl::OkStatus();
      }));
  const auto has = [&](SameFiles one) { return std::find(found.begin(), found.end(), one) != found.end(); };
  if (has(SameFiles::kNo)) return SameFiles::kNo;
  return has(SameFiles::kYes) ? SameFiles::kYes : SameFiles::kUnknown;
}

}  // namespace cairn

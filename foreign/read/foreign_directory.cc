#include "foreign/read/foreign_directory.h"

#include <algorithm>
#include <optional>
#include <string_view>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "foreign/read/dcp/dcp_directory.h"
#include "foreign/read/deepspeed/deepspeed_directory.h"
#include "foreign/read/huggingface/safetensors_directory.h"
#include "foreign/read/paddle/paddle_directory.h"
#include "foreign/read/paddle/paddle_file.h"
#include "foreign/read/source/foreign_path.h"
#include "foreign/read/torch/torch_archive.h"
#include "foreign/read/torchsnapshot/torchsnapshot_directory.h"
#include "store/open/place.h"

namespace cairn {
namespace {

// The usual advice for these reasons is for Cairn's own checkpoints: `cairn verify` cannot check files of another
// library.
absl::Status WithAdvice(const absl::Status& error) {
  const std::optional<Reason> reason = ReasonOf(error);
  if (reason != Reason::kFileMissing && reason != Reason::kFileTruncated && reason != Reason::kBadSafetensors &&
      reason != Reason::kChecksumMismatch) {
    return error;
  }
  return WithMetadata(error, {{"next", "Use another copy of the source; nothing of it was loaded."}});
}

absl::StatusOr<Manifest> ReadOneFile(const std::string& real, std::vector<std::string>* left_out) {
  return IsPickle(real) ? ReadPaddleFile(real, left_out) : ReadTorchArchive(real, left_out);
}

absl::StatusOr<Manifest> ReadDirectory(const std::string& real) {
  CAIRN_ASSIGN_OR_RETURN(const std::vector<ForeignEntry> entries, ListForeign(real));
  const auto has = [&](std::string_view name) {
    return std::any_of(entries.begin(), entries.end(), [&](const ForeignEntry& entry) { return entry.name == name; });
  };
  if (has(kDcpMetadataName)) return ReadDcpDirectory(real);
  if (has(kTorchsnapshotMetadataName)) return ReadTorchsnapshotDirectory(real);
  CAIRN_ASSIGN_OR_RETURN(const std::string paddle, FindPaddleMetadata(real));
  if (!paddle.empty()) return ReadPaddleDirectory(real, paddle);
  CAIRN_ASSIGN_OR_RETURN(const std::string deepspeed, FindDeepSpeedCheckpoint(real));
  if (!deepspeed.empty()) return ReadDeepSpeedDirectory(deepspeed);
  return ReadSafetensorsDirectory(real);
}

}  // namespace

absl::StatusOr<Manifest> ReadForeignDirectory(const std::string& directory, std::vector<std::string>* left_out) {
  const auto named = FullNameOf(directory);
  if (!named.ok()) return Annotate(named.status(), "the directory to import");
  const absl::StatusOr<std::string> resolved = ResolvePath(*named);
  const absl::StatusOr<ForeignKind> kind = resolved.ok() ? KindOf(*resolved) : resolved.status();
  if (!resolved.ok() || HasReason(kind.status(), Reason::kFileMissing)) {
    return WithMetadata(kind.status(), {{"next", "Check the path of the source."}});
  }
  CAIRN_RETURN_IF_ERROR(kind.status());
  const std::string& real = *resolved;
  const bool file = *kind == ForeignKind::kFile;
  // In a hub's cache the link has the name of the file, and its target has another name.
  if (file && (absl::EndsWith(real, ".safetensors") || absl::EndsWith(directory, ".safetensors"))) {
    return MakeError(Reason::kBadRequest, absl::StrCat(directory, " is one file of a safetensors directory"),
                     {{"file", real}, {"next", "Give the directory that the file is in."}});
  }
  absl::StatusOr<Manifest> manifest = file ? ReadOneFile(real, left_out) : ReadDirectory(real);
  if (!manifest.ok()) return WithAdvice(manifest.status());
  return manifest;
}

}  // namespace cairn

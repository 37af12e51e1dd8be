#include "foreign/read/foreign_directory.h"

#include <sys/stat.h>
#include <unistd.h>

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
#include "foreign/read/source/foreign_file.h"
#include "foreign/read/torch/torch_archive.h"
#include "foreign/read/torchsnapshot/torchsnapshot_directory.h"

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
  const auto has = [&](std::string_view name) {
    return access(absl::StrCat(real, "/", std::string(name)).c_str(), F_OK) == 0;
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
  if (directory.empty() || directory[0] != '/' || directory.find('\0') != std::string::npos) {
    return MakeError(Reason::kBadRequest,
                     absl::StrCat("the directory to import must be an absolute path, not '", directory, "'"),
                     {{"next", "Give the path from / on; the coordinator and all agents must see it."}});
  }
  const absl::StatusOr<std::string> resolved = ResolvePath(directory);
  if (!resolved.ok()) {
    return WithMetadata(resolved.status(), {{"next", "Check the path of the source."}});
  }
  const std::string& real = *resolved;
  struct stat info;
  const bool file = stat(real.c_str(), &info) == 0 && S_ISREG(info.st_mode);
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

#include "store/s3/s3_file.h"

#include "absl/strings/str_cat.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn {
namespace {

// As long as most headers.
constexpr uint64_t kBeginBytes = 16 << 10;
// Stores tell times in whole seconds.
constexpr absl::Duration kTimeStep = absl::Seconds(2);

}  // namespace

absl::StatusOr<std::unique_ptr<S3File>> S3File::Open(S3Client& client, std::string key, std::string path,
                                                     const OpenOptions& options) {
  CAIRN_ASSIGN_OR_RETURN(S3Content content, client.FetchBegin(key, kBeginBytes));
  const S3Object& object = content.object;
  if (options.bytes.has_value() && *options.bytes != object.bytes) {
    return MakeError(
        Reason::kFileTruncated, absl::StrCat(path, " has ", object.bytes, " bytes, its manifest says ", *options.bytes),
        {{"file", path}, {"bytes", absl::StrCat(object.bytes)}, {"expected", absl::StrCat(*options.bytes)}});
  }
  if (options.modified_ns.value_or(0) != 0 &&
      absl::AbsDuration(object.modified - absl::FromUnixNanos(*options.modified_ns)) > kTimeStep) {
    return MakeError(Reason::kBadForeignFile, absl::StrCat(path, " was written anew"), {{"file", path}});
  }
  if (options.counters != nullptr) options.counters->direct += content.bytes.size();
  return std::unique_ptr<S3File>(new S3File({std::move(path), object.bytes, object.modified, object.etag}, options,
                                            client, std::move(key), std::move(content.bytes)));
}

absl::Status S3File::Read(Way, uint64_t offset, uint64_t size, char* to, bool) {
  if (offset <= begin_.size() && size <= begin_.size() - offset) {
    begin_.copy(to, size, offset);
    return absl::OkStatus();
  }
  CAIRN_RETURN_IF_ERROR(client_.Get(key_, identity(), offset, size, to, stop_));
  if (counters_ != nullptr) counters_->direct += size;
  return absl::OkStatus();
}

}  // namespace cairn

#include "store/s3/s3_upload.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn {
namespace {

constexpr int kMostParts = 10'000;
constexpr int kPartsOfOneSize = 1'000;
constexpr int kMostDoublings = 4;

}  // namespace

uint64_t S3Upload::PartBytes(int number) const {
  if (number > kMostParts) return 0;
  return kPartBytes << std::min((number - 1) / kPartsOfOneSize, kMostDoublings);
}

absl::StatusOr<std::string> S3Upload::Id() {
  MutexLock lock(id_mutex_);
  if (id_.empty()) {
    CAIRN_ASSIGN_OR_RETURN(id_, client_.uploads().Begin(key_, writer_, stop_));
  }
  return id_;
}

absl::Status S3Upload::Send(int number, std::string_view bytes) {
  CAIRN_ASSIGN_OR_RETURN(const std::string id, Id());
  CAIRN_ASSIGN_OR_RETURN(S3Part part, client_.uploads().PutPart(key_, id, number, bytes, stop_));
  MutexLock lock(mutex_);
  parts_[number] = std::move(part);
  return absl::OkStatus();
}

absl::StatusOr<Put> S3Upload::Complete(bool if_absent) {
  CAIRN_ASSIGN_OR_RETURN(const std::string id, Id());
  std::vector<S3Part> parts;
  {
    MutexLock lock(mutex_);
    for (const auto& [number, part] : parts_) parts.push_back(part);
  }
  return client_.uploads().Complete(key_, id, parts, writer_, if_absent);
}

absl::Status S3Upload::Finish() {
  bool empty;
  {
    MutexLock lock(mutex_);
    empty = parts_.empty();
  }
  if (empty) {  // an upload without parts cannot be completed
    CAIRN_RETURN_IF_ERROR(client_.PutObject(key_, "", /*if_absent=*/false).put.status());
    Abort().IgnoreError();  // the object stands
    return absl::OkStatus();
  }
  CAIRN_ASSIGN_OR_RETURN(const Put put, Complete(/*if_absent=*/false));
  if (put == Put::kExists) {
    return MakeError(Reason::kStorageError, absl::StrCat(path_, " was written by another program at the same time"),
                     {{"file", path_}, {"next", "Look whether two programs write this object."}});
  }
  MutexLock lock(id_mutex_);
  id_.clear();
  return absl::OkStatus();
}

absl::Status S3Upload::AbortUnless(const std::atomic<bool>* stop) {
  MutexLock lock(id_mutex_);
  if (id_.empty()) return absl::OkStatus();
  CAIRN_RETURN_IF_ERROR(client_.uploads().Abort(key_, id_, stop));
  id_.clear();
  return absl::OkStatus();
}

}  // namespace cairn

#include "store/s3/s3_file_writer.h"

#include <algorithm>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/resources/memory.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn {
namespace {

// A store takes parts with the numbers 1 to 10,000.
constexpr uint64_t kMostParts = 9999;

}  // namespace

uint64_t S3FileWriter::PartStep(uint64_t data_bytes) {
  return std::max(kHeldBytes, (data_bytes + kMostParts - 2) / (kMostParts - 1));
}

absl::Status S3FileWriter::Write(uint64_t offset, const char* bytes, uint64_t size) {
  const uint64_t begin = offset - header_bytes_;
  if (begin >= data_bytes_) return absl::OkStatus();  // only what fills up the last part
  std::string_view data(bytes, std::min(size, data_bytes_ - begin));
  const bool last = begin + data.size() == data_bytes_;
  const uint64_t step = PartStep(data_bytes_);
  if (begin % step != 0 || (!last && data.size() % step != 0)) {
    return MakeError(Reason::kStorageError,
                     absl::StrCat(path_, ": ", data.size(), " bytes at ", offset,
                                  " are no whole parts for an object store, which have ", step, " bytes here"),
                     {{"file", path_}});
  }
  for (uint64_t at = 0; at < data.size(); at += step) {
    const std::string_view part = data.substr(at, step);
    if (begin + at == 0 && HoldsFirst()) {
      CAIRN_RETURN_IF_ERROR(WithMemory(absl::StrCat("to hold the first part of ", path_), [&] {
        MutexLock lock(mutex_);
        held_.reserve(header_bytes_ + part.size());
        held_.assign(header_bytes_, '\0');
        held_ += part;
        return absl::OkStatus();
      }));
      continue;
    }
    // Amazon wants numbers from 1 on without a gap where parts have checksums.
    CAIRN_RETURN_IF_ERROR(upload_.Send(static_cast<int>((begin + at) / step) + 1, part));
  }
  return absl::OkStatus();
}

absl::Status S3FileWriter::Finish(std::string_view header) {
  std::string first;
  {
    MutexLock lock(mutex_);
    first = std::move(held_);
  }
  if (first.size() < header.size()) first.resize(header.size());
  header.copy(first.data(), header.size());
  absl::StatusOr<Put> put = Put::kCreated;
  made_ = true;
  if (!HasParts()) {
    put = client_.PutObject(key_, first, /*if_absent=*/true).put;
  } else {
    if (HoldsFirst()) CAIRN_RETURN_IF_ERROR(upload_.Send(1, first));
    put = upload_.Complete(/*if_absent=*/true);
  }
  CAIRN_RETURN_IF_ERROR(put.status());
  if (*put == Put::kCreated) return absl::OkStatus();
  made_ = false;
  return MakeError(Reason::kStorageError, absl::StrCat(path_, " is there already"), {{"file", path_}});
}

absl::Status S3FileWriter::Remove() {
  const absl::Status aborted = upload_.AbortUnlessStopped();
  absl::Status deleted;
  if (made_) deleted = client_.Delete({key_});
  return aborted.ok() ? deleted : aborted;
}

}  // namespace cairn

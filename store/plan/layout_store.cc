#include "store/plan/layout_store.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/digest.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn {

absl::StatusOr<uint64_t> LayoutStore::PutChunk(const std::string& agent, const std::string& digest,
                                               uint64_t total_bytes, uint64_t offset, const std::string& chunk,
                                               const std::string& job) {
  if (digest.size() != kDigestBytes) {
    return MakeError(Reason::kBadRequest,
                     absl::StrCat("a layout's digest has ", kDigestBytes, " bytes, not ", digest.size()));
  }
  if (total_bytes > kMaxLayoutBytes || chunk.size() > kMaxChunkBytes) {
    return MakeError(Reason::kMessageTooLarge,
                     absl::StrCat("a layout of ", total_bytes, " bytes in chunks of ", chunk.size(), "; at most ",
                                  kMaxLayoutBytes, " in chunks of ", kMaxChunkBytes));
  }
  Upload whole;
  {
    MutexLock lock(mutex_);
    if (layouts_.contains(digest)) return total_bytes;
    Upload& upload = uploads_[agent];
    if (upload.digest != digest || upload.total_bytes != total_bytes || offset == 0) {
      upload_bytes_ -= upload.bytes.size();
      upload = Upload{digest, total_bytes, {}};
    }
    if (offset != upload.bytes.size() || chunk.size() > total_bytes - offset) {
      const uint64_t next = upload.bytes.size();
      if (next == 0) uploads_.erase(agent);
      return MakeError(Reason::kBadRequest, absl::StrCat("chunk of ", chunk.size(), " bytes at ", offset, " of ",
                                                         total_bytes, ", expected one at ", next));
    }
    upload.used = ++uses_;
    while (upload_bytes_ + chunk.size() > capacity_bytes_) {
      // An upload that its agent has given up, if there is one, is the oldest.
      const auto oldest = std::min_element(uploads_.begin(), uploads_.end(),
                                           [](const auto& a, const auto& b) { return a.second.used < b.second.used; });
      if (oldest->first != agent) {
        upload_bytes_ -= oldest->second.bytes.size();
        uploads_.erase(oldest);
        continue;
      }
      return MakeError(Reason::kMessageTooLarge,
                       absl::StrCat("uploads of layouts take ", upload_bytes_, " bytes already"));
    }
    upload.bytes += chunk;
    upload_bytes_ += chunk.size();
    if (upload.bytes.size() < total_bytes) return upload.bytes.size();
    upload_bytes_ -= upload.bytes.size();
    whole = std::move(upload);
    uploads_.erase(agent);
  }
  CAIRN_RETURN_IF_ERROR(Put(digest, std::move(whole.bytes), job));
  return total_bytes;
}

std::string LayoutStore::BoundFor(const std::string& job, uint64_t bytes, bool& all_jobs) {
  const auto of_job = bytes_of_job_.find(job);
  const uint64_t used = job.empty() || of_job == bytes_of_job_.end() ? 0 : of_job->second;
  all_jobs = false;
  if (!job.empty() && (bytes > job_bytes_ || used > job_bytes_ - bytes)) {
    return absl::StrCat("the layouts in use of job ", job, " take ", used, " bytes of at most ", job_bytes_);
  }
  all_jobs = true;
  if (bytes > capacity_bytes_ || bytes_ > capacity_bytes_ - bytes) {
    return absl::StrCat("the layouts in use of all jobs take ", bytes_, " bytes of at most ", capacity_bytes_);
  }
  return "";
}

absl::Status LayoutStore::Put(const std::string& digest, std::string bytes, const std::string& job) {
  if (Digest(bytes) != digest) {
    return MakeError(Reason::kBadRequest,
                     absl::StrCat("the layout's bytes do not have the digest ", DigestHex(digest)));
  }
  for (;;) {
    bool all_jobs = false;
    std::string bound;
    {
      MutexLock lock(mutex_);
      if (layouts_.contains(digest)) return absl::OkStatus();
      bound = BoundFor(job, bytes.size(), all_jobs);
      if (bound.empty()) {
        bytes_ += bytes.size();
        if (!job.empty()) bytes_of_job_[job] += bytes.size();
        layouts_[digest] = {std::make_shared<const std::string>(std::move(bytes)), job};
        return absl::OkStatus();
      }
    }
    if (make_room_ && make_room_(job, all_jobs)) continue;
    ++refused_;
    const char* next = all_jobs ? "Let some of the jobs use another coordinator, with a root of its own."
                                : "Give the tensors fewer or shorter names, or save fewer of them in one call.";
    return MakeError(Reason::kMessageTooLarge,
                     absl::StrCat("no room for a layout of ", bytes.size(), " bytes: ", bound),
                     {{"job", job}, {"next", next}});
  }
}

std::shared_ptr<const std::string> LayoutStore::Get(const std::string& digest) {
  MutexLock lock(mutex_);
  const auto found = layouts_.find(digest);
  return found == layouts_.end() ? nullptr : found->second.bytes;
}

void LayoutStore::Drop(const std::string& digest) {
  MutexLock lock(mutex_);
  const auto found = layouts_.find(digest);
  if (found == layouts_.end()) return;
  const uint64_t size = found->second.bytes->size();
  bytes_ -= size;
  if (const auto of_job = bytes_of_job_.find(found->second.job); of_job != bytes_of_job_.end()) {
    of_job->second -= size;
    if (of_job->second == 0) bytes_of_job_.erase(of_job);
  }
  layouts_.erase(found);
}

size_t LayoutStore::size() {
  MutexLock lock(mutex_);
  return layouts_.size();
}

void LayoutStore::Forget(const std::string& agent) {
  MutexLock lock(mutex_);
  const auto found = uploads_.find(agent);
  if (found == uploads_.end()) return;
  upload_bytes_ -= found->second.bytes.size();
  uploads_.erase(found);
}

}  // namespace cairn

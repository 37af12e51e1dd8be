#include "coordinator/server/layout_store.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/digest.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn {

absl::StatusOr<uint64_t> LayoutStore::PutChunk(const std::string& agent, const std::string& digest,
                                               uint64_t total_bytes, uint64_t offset, const std::string& chunk) {
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
      // One that an agent has left behind, if there is any, is the oldest.
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
  CAIRN_RETURN_IF_ERROR(Put(digest, std::move(whole.bytes)));
  return total_bytes;
}

absl::Status LayoutStore::Put(const std::string& digest, std::string bytes) {
  if (Digest(bytes) != digest) {
    return MakeError(Reason::kBadRequest,
                     absl::StrCat("the layout's bytes do not have the digest ", DigestHex(digest)));
  }
  MutexLock lock(mutex_);
  if (layouts_.contains(digest)) return absl::OkStatus();
  if (bytes_ + bytes.size() > capacity_bytes_) {
    return MakeError(Reason::kMessageTooLarge, absl::StrCat("the layouts in use take ", bytes_, " bytes already"));
  }
  bytes_ += bytes.size();
  layouts_[digest] = std::make_shared<const std::string>(std::move(bytes));
  return absl::OkStatus();
}

std::shared_ptr<const std::string> LayoutStore::Get(const std::string& digest) {
  MutexLock lock(mutex_);
  const auto found = layouts_.find(digest);
  return found == layouts_.end() ? nullptr : found->second;
}

void LayoutStore::Drop(const std::string& digest) {
  MutexLock lock(mutex_);
  const auto found = layouts_.find(digest);
  if (found == layouts_.end()) return;
  bytes_ -= found->second->size();
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

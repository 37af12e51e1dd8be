#include "coordinator/server/layout_store.h"

#include "absl/strings/str_cat.h"
#include "common/base/digest.h"
#include "common/base/status.h"
#include "common/rpc/reason.h"

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
    if (index_.contains(digest)) return total_bytes;
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
    if (upload_bytes_ + chunk.size() > capacity_bytes_) {
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
  if (!index_.contains(digest)) Insert(digest, std::move(bytes));
  return absl::OkStatus();
}

void LayoutStore::Insert(const std::string& digest, std::string bytes) {
  bytes_ += bytes.size();
  entries_.push_front({digest, std::make_shared<const std::string>(std::move(bytes))});
  index_[digest] = entries_.begin();
  while (bytes_ > capacity_bytes_ && entries_.size() > 1) {
    bytes_ -= entries_.back().bytes->size();
    index_.erase(entries_.back().digest);
    evicted_.push_back(entries_.back().digest);
    entries_.pop_back();
  }
}

std::shared_ptr<const std::string> LayoutStore::Get(const std::string& digest) {
  MutexLock lock(mutex_);
  const auto found = index_.find(digest);
  if (found == index_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, found->second);
  return found->second->bytes;
}

void LayoutStore::Forget(const std::string& agent) {
  MutexLock lock(mutex_);
  const auto found = uploads_.find(agent);
  if (found == uploads_.end()) return;
  upload_bytes_ -= found->second.bytes.size();
  uploads_.erase(found);
}

std::vector<std::string> LayoutStore::TakeEvicted() {
  MutexLock lock(mutex_);
  return std::exchange(evicted_, {});
}

}  // namespace cairn

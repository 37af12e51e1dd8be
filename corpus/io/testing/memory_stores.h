// Object stores in memory, which tests can disturb.
#ifndef CAIRN_CORPUS_IO_TESTING_MEMORY_STORES_H_
#define CAIRN_CORPUS_IO_TESTING_MEMORY_STORES_H_

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/base/mutex.h"
#include "common/status/reason.h"
#include "corpus/io/object_stores.h"

namespace cairn::corpus {

// As long as it lives, the process uses it, with all names that begin with "s3://". Thread-safe.
class MemoryStores : public ObjectStores {
 public:
  MemoryStores() { UseObjectStores(this); }
  ~MemoryStores() override { UseObjectStores(nullptr); }

  // May be set before the stores are used.
  uint64_t part_bytes = 1000;
  int most_parts = 10'000;
  // Called before a read and before a part is taken; an error is what the caller is told. May be null.
  std::function<absl::Status(const std::string& name, uint64_t offset)> before_read;
  std::function<absl::Status(const std::string& name, int part)> before_send;

  void Put(const std::string& name, std::string bytes) {
    MutexLock lock(mutex_);
    objects_[name] = {std::move(bytes), absl::StrCat("version ", ++versions_)};
  }
  // Returns the bytes of an object; "none" if there is none.
  std::string Get(const std::string& name) const {
    MutexLock lock(mutex_);
    const auto found = objects_.find(name);
    return found == objects_.end() ? "none" : found->second.bytes;
  }
  std::vector<std::string> Names() const {
    MutexLock lock(mutex_);
    std::vector<std::string> names;
    for (const auto& [name, object] : objects_) names.push_back(name);
    return names;
  }
  // How many objects were begun, and neither completed nor removed.
  int unfinished() const {
    MutexLock lock(mutex_);
    return unfinished_;
  }
  // The names of what was completed or removed, in order: "+s3://..." or "-s3://...".
  std::vector<std::string> changes() const {
    MutexLock lock(mutex_);
    return changes_;
  }

  bool Has(std::string_view name) const override { return name.starts_with("s3://"); }
  absl::StatusOr<std::string> NameOf(std::string_view text) const override {
    std::string name(text);
    while (name.ends_with('/')) name.pop_back();
    if (name.size() > 5) return name;
    return MakeError(Reason::kBadRequest, "it names no bucket");
  }
  absl::StatusOr<std::vector<Entry>> List(const std::string& directory) override {
    MutexLock lock(mutex_);
    const std::string prefix = *NameOf(directory) + "/";
    std::vector<Entry> entries;
    for (auto at = objects_.lower_bound(prefix); at != objects_.end() && at->first.starts_with(prefix); ++at) {
      const std::string rest = at->first.substr(prefix.size());
      const size_t slash = rest.find('/');
      Entry entry{rest.substr(0, slash), at->second.bytes.size(), at->second.identity, slash != rest.npos};
      if (!entries.empty() && entries.back().name == entry.name && entry.directory) continue;
      entries.push_back(std::move(entry));
    }
    return entries;
  }
  bool Stands(const std::string& name) override { return Get(name) != "none" || !List(name)->empty(); }
  absl::StatusOr<std::unique_ptr<ObjectWriter>> Create(const std::string& name) override {
    MutexLock lock(mutex_);
    ++unfinished_;
    return std::make_unique<Writer>(*this, name);
  }
  absl::Status Remove(const std::vector<std::string>& names) override {
    MutexLock lock(mutex_);
    for (const std::string& name : names) {
      if (objects_.erase(name) > 0) changes_.push_back("-" + name);
    }
    return absl::OkStatus();
  }

 private:
  struct Object {
    std::string bytes;
    std::string identity;
  };

  class Reader : public ObjectReader {
   public:
    Reader(MemoryStores& stores, std::string name, Object object)
        : stores_(stores), name_(std::move(name)), object_(std::move(object)) {}
    uint64_t bytes() const override { return object_.bytes.size(); }
    const std::string& identity() const override { return object_.identity; }
    absl::Status Read(uint64_t offset, uint64_t size, char* to) override {
      if (stores_.before_read) {
        if (absl::Status status = stores_.before_read(name_, offset); !status.ok()) return status;
      }
      MutexLock lock(stores_.mutex_);
      const auto now = stores_.objects_.find(name_);
      if (now == stores_.objects_.end() || now->second.identity != object_.identity) {
        return MakeError(Reason::kInputUnreadable, name_ + " was written anew");
      }
      object_.bytes.copy(to, size, offset);
      return absl::OkStatus();
    }

   private:
    MemoryStores& stores_;
    const std::string name_;
    const Object object_;
  };

  class Writer : public ObjectWriter {
   public:
    Writer(MemoryStores& stores, std::string name) : stores_(stores), name_(std::move(name)) {}
    uint64_t PartBytes(int number) const override { return number > stores_.most_parts ? 0 : stores_.part_bytes; }
    absl::Status Send(int number, std::string_view bytes) override {
      if (stores_.before_send) {
        if (absl::Status status = stores_.before_send(name_, number); !status.ok()) return status;
      }
      MutexLock lock(stores_.mutex_);
      parts_[number] = std::string(bytes);
      return absl::OkStatus();
    }
    absl::Status Complete() override {
      std::string bytes;
      int last = 0;
      for (const auto& [number, part] : parts_) {
        if (number != ++last) return MakeError(Reason::kStorageError, "the numbers of the parts have a gap");
        bytes += part;
      }
      stores_.Put(name_, std::move(bytes));
      MutexLock lock(stores_.mutex_);
      --stores_.unfinished_;
      stores_.changes_.push_back("+" + name_);
      return absl::OkStatus();
    }
    void Abort() override {
      MutexLock lock(stores_.mutex_);
      --stores_.unfinished_;
    }

   private:
    MemoryStores& stores_;
    const std::string name_;
    std::map<int, std::string> parts_;
  };

  absl::StatusOr<std::unique_ptr<ObjectReader>> OpenNow(const std::string& name) override {
    MutexLock lock(mutex_);
    const auto found = objects_.find(name);
    if (found == objects_.end()) return MakeError(Reason::kFileMissing, name + " is missing");
    return std::make_unique<Reader>(*this, name, found->second);
  }

  mutable Mutex mutex_;
  std::map<std::string, Object> objects_ ABSL_GUARDED_BY(mutex_);
  uint64_t versions_ ABSL_GUARDED_BY(mutex_) = 0;
  int unfinished_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<std::string> changes_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_IO_TESTING_MEMORY_STORES_H_

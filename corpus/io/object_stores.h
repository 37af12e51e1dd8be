// What the corpus tools need of object stores. This folder knows of none: whoever uses it gives it their stores
// (cli/corpus/placed_objects.h), and without them every name is a path of this machine.
#ifndef CAIRN_CORPUS_IO_OBJECT_STORES_H_
#define CAIRN_CORPUS_IO_OBJECT_STORES_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/mutex.h"

namespace cairn::corpus {

// An object that is open to be read. It stays the object that was opened: if another one takes its name, reads fail.
// Thread-safe.
class ObjectReader {
 public:
  virtual ~ObjectReader() = default;
  virtual uint64_t bytes() const = 0;
  // Returns bytes that differ from those of every other object that had or will have this name.
  virtual const std::string& identity() const = 0;
  // Reads [offset, offset + size), which lies within the object, to `to`.
  virtual absl::Status Read(uint64_t offset, uint64_t size, char* to) = 0;
};

// A new object, which gets its name when it is complete. Parts have the numbers 1, 2, ..
class ObjectWriter {
 public:
  virtual ~ObjectWriter() = default;
  // Returns how many bytes this part must have, unless it is the last one; 0: there can be no such part.
  virtual uint64_t PartBytes(int number) const = 0;
  // Sends a part from the caller's memory. Thread-safe.
  virtual absl::Status Send(int number, std::string_view bytes) = 0;
  // Makes the object of the parts. It replaces an object of this name in one step.
  virtual absl::Status Complete() = 0;
  // Removes what was sent.
  virtual void Abort() = 0;
};

// Names are addresses, as "s3://bucket/data/a.jsonl". Errors name the object and say what to do. Methods may fail with
// STORAGE_ERROR: the store cannot be reached, or it failed; STORAGE_READ_ONLY: it denies access; ROOT_MISSING: there is
// no such bucket; INTERRUPTED. Thread-safe.
class ObjectStores {
 public:
  virtual ~ObjectStores() = default;

  // Returns whether a name is an address, also one of a kind that Cairn does not know.
  virtual bool Has(std::string_view name) const = 0;
  // Returns the address that a person's text means, without slashes that it has twice or at its end. BAD_REQUEST: it is
  // none; UNSUPPORTED: it is in another kind of store.
  virtual absl::StatusOr<std::string> NameOf(std::string_view text) const = 0;

  struct Entry {
    std::string name;  // without the address of the directory
    uint64_t bytes = 0;
    std::string identity;  // ObjectReader::identity
    bool directory = false;
  };
  // Lists what is in a directory, by name; nothing if no object is below it.
  virtual absl::StatusOr<std::vector<Entry>> List(const std::string& directory) = 0;
  // Returns whether an object has this name, or objects are below it. An error counts as no.
  virtual bool Stands(const std::string& name) = 0;
  // Opens an input. INPUT_UNREADABLE: there is no such object, or another one than this process has seen before.
  absl::StatusOr<std::unique_ptr<ObjectReader>> Open(const std::string& name);
  // Begins a new object.
  virtual absl::StatusOr<std::unique_ptr<ObjectWriter>> Create(const std::string& name) = 0;
  // Removes objects; absent ones do not matter. BAD_REQUEST: other objects are below such a name.
  virtual absl::Status Remove(const std::vector<std::string>& names) = 0;

  // What is known of an input.
  struct Known {
    uint64_t bytes = 0;
    std::string identity;
  };
  // Remembers what a listing has told of an input. Each later Open must find the same object, so that all passes over
  // an input read the same bytes.
  void Remember(const std::string& name, Known known);
  std::optional<Known> Recall(const std::string& name) const;

 private:
  // Opens an object, whatever is known of it. FILE_MISSING: there is none.
  virtual absl::StatusOr<std::unique_ptr<ObjectReader>> OpenNow(const std::string& name) = 0;

  mutable Mutex mutex_;
  std::map<std::string, Known> known_ ABSL_GUARDED_BY(mutex_);
};

// Says which stores this process uses; null: none. Must be called before anything is opened. The stores must live as
// long as they are used.
void UseObjectStores(ObjectStores* stores);

// Returns the stores if `name` is an address in them, else null.
ObjectStores* StoresOf(std::string_view name);

// Refuses an address where only a path of this machine serves. `what` names the option, and `why` says what is done
// with the file: "which is read at random". UNSUPPORTED; as NameOf.
absl::Status CheckIsLocal(std::string_view what, const std::string& name, std::string_view why);

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_IO_OBJECT_STORES_H_

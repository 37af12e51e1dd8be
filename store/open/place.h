// Finds files outside of a root by their full names: "/models/llama/config.json" or "s3://bucket/llama/config.json".
#ifndef CAIRN_STORE_OPEN_PLACE_H_
#define CAIRN_STORE_OPEN_PLACE_H_

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "store/storage/storage.h"
#include "store/storage/stored_file.h"
#include "store/storage/upload.h"

namespace cairn {

// Returns the full name that a person's text means. An absolute path stays as it is. An address loses slashes that it
// has twice or at its end. INVALID_ARGUMENT (BAD_REQUEST): the text is a relative path, names no bucket, has "." or
// ".." behind it, or options behind a "?": where the store is, the environment says. UNIMPLEMENTED (UNSUPPORTED): it
// names another kind of store.
absl::StatusOr<std::string> FullNameOf(std::string_view text);

// Returns the one spelling of a root's name: a path of this machine without symbolic links, ".", ".." and needless
// slashes, as far as it exists; an address without needless slashes. With options behind a "?" an address stays as
// it is. If the file system does not answer, the name does.
std::string CanonicalNameOf(const std::string& root);

// Returns whether two canonical names are the same, or one of them names something below the other.
bool LieWithinEachOther(std::string_view one, std::string_view other);

// Where the file or directory of a full name is.
struct Place {
  // All of this machine's file system, or all of a bucket. Its FullPath gives full names.
  std::shared_ptr<Storage> storage;
  std::string path;  // in it; "" is all of it
};

// The process keeps the storages of the buckets that it used last, so a later call makes no new connections. It sends
// no request. Thread-safe. Fails as FullNameOf and S3Storage::OpenBucket do.
absl::StatusOr<Place> FindPlace(const std::string& full_name);

// Opens a file, and follows no symbolic link. Thread-safe. INVALID_ARGUMENT (PATH_ESCAPE): a name in the path is empty,
// "..", "." or a link. Else it fails as FindPlace and Storage::Open do.
absl::StatusOr<std::unique_ptr<StoredFile>> OpenAnywhere(const std::string& full_name, const OpenOptions& options = {});

// Makes ready to write an object whose length nobody knows yet. It sends no request. Thread-safe. Fails as FindPlace
// and S3Storage::NewUpload. INVALID_ARGUMENT (BAD_REQUEST): the full name is a path of this machine.
absl::StatusOr<std::unique_ptr<Upload>> NewUploadTo(const std::string& full_name);

}  // namespace cairn

#endif  // CAIRN_STORE_OPEN_PLACE_H_

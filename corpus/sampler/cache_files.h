// The files of one dataset in Megatron's cache: "HASH-CLASS-SPLIT-description.txt" and arrays beside it.
#ifndef CAIRN_CORPUS_SAMPLER_CACHE_FILES_H_
#define CAIRN_CORPUS_SAMPLER_CACHE_FILES_H_

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "corpus/io/made_directory.h"
#include "corpus/sampler/npy_file.h"

namespace cairn::corpus {

// The directory of a cache, for one run that fills it. Immutable, and so thread-safe.
class CacheDirectory {
 public:
  // Makes the directory if it is missing, and removes what killed runs have left in it. It must be the last to go.
  // NO_SPACE, STORAGE_READ_ONLY, STORAGE_ERROR.
  static absl::StatusOr<CacheDirectory> Open(const std::string& path);

  std::string PathOf(const std::string& name) const;
  // Returns the name under which this run hides the file `name` until it is whole.
  std::string HiddenPathOf(const std::string& name) const;
  // Makes all names durable. FSYNC_FAILED.
  absl::Status Sync() const;

 private:
  CacheDirectory(std::string path, std::string token, MadeDirectory made)
      : path_(std::move(path)), token_(std::move(token)), made_(std::move(made)) {}

  std::string path_;
  std::string token_;
  MadeDirectory made_;
};

// Immutable, and so thread-safe. Megatron takes the files for its own if their names are right and all are there.
class CacheFiles {
 public:
  // `identifiers` are the dataset's `unique_identifiers`; their "class" is in the names. The directory must outlive
  // this object.
  CacheFiles(const CacheDirectory& directory, const nlohmann::ordered_json& identifiers, const std::string& split);

  // "HASH-CLASS-SPLIT", which no dataset with other identifiers has.
  const std::string& name() const { return name_; }

  // Returns whether all files stand there, with the sizes and dtypes that they must have. `headers` are those of the
  // arrays by their names, as "document_index".
  bool AreWhole(const std::map<std::string, NpyHeader>& headers) const;

  // Creates a hidden file for the array `name`. Errors as NpyFile::Create.
  absl::StatusOr<NpyFile> CreateArray(const std::string& name, const NpyHeader& header) const;

  // Syncs the arrays and gives them their names, the description last. Of an older set it goes first, so a kill leaves
  // a set that Megatron builds anew. The description is not synced: Megatron reads no more of it than its name, and
  // AreWhole sees what a power cut has made of it. NO_SPACE, STORAGE_READ_ONLY, STORAGE_ERROR, FSYNC_FAILED.
  absl::Status Publish(std::vector<NpyFile> arrays) const;

 private:
  std::string NameOf(const std::string& suffix) const { return name_ + "-" + suffix; }

  const CacheDirectory& directory_;
  std::string description_;
  std::string name_;
};

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_SAMPLER_CACHE_FILES_H_

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
#include "corpus/sampler/npy_file.h"

namespace cairn::corpus {

// Immutable, and so thread-safe. Megatron takes the files for its own if their names are right and all are there.
class CacheFiles {
 public:
  // `identifiers` are the dataset's `unique_identifiers`; their "class" is in the names.
  CacheFiles(const std::string& directory, const nlohmann::ordered_json& identifiers, const std::string& split);

  // "HASH-CLASS-SPLIT", which no dataset with other identifiers has.
  const std::string& name() const { return name_; }

  // Returns whether all files stand there, with the sizes and dtypes that they must have. `headers` are those of the
  // arrays by their names, as "document_index".
  bool AreWhole(const std::map<std::string, NpyHeader>& headers) const;

  // Creates a hidden file for the array `name`. Errors as NpyFile::Create.
  absl::StatusOr<NpyFile> CreateArray(const std::string& name, const NpyHeader& header) const;

  // Gives the arrays their names, the description last. Of an older set it goes first, so a kill leaves a set that
  // Megatron builds anew. NO_SPACE, STORAGE_READ_ONLY, STORAGE_ERROR, FSYNC_FAILED.
  absl::Status Commit(std::vector<NpyFile> arrays) const;

 private:
  std::string PathOf(const std::string& suffix) const;

  std::string directory_;
  std::string description_;
  std::string name_;
};

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_SAMPLER_CACHE_FILES_H_

// A prefix of a storage into which an export writes, such as s3://bucket/models/llama.
#ifndef CAIRN_FOREIGN_WRITE_OUTPUT_PREFIX_H_
#define CAIRN_FOREIGN_WRITE_OUTPUT_PREFIX_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "foreign/write/export_output.h"
#include "store/storage/storage.h"

namespace cairn {

// Large files are uploads, which nobody sees until Publish completes them. An export that was interrupted cannot be
// continued: what it has sent is removed, or stays as unfinished uploads if its process was killed. A storage has no
// lock for two exports into one prefix. At most one of them succeeds, as no file replaces another.
class OutputPrefix : public ExportOutput {
 public:
  OutputPrefix(std::shared_ptr<Storage> storage, std::string directory)
      : storage_(std::move(storage)), directory_(std::move(directory)) {}
  ~OutputPrefix() override;
  OutputPrefix(const OutputPrefix&) = delete;
  OutputPrefix& operator=(const OutputPrefix&) = delete;

  uint64_t step() const override { return kOutputPieceBytes; }
  // Also removes uploads there that were begun more than a day ago, if the storage allows that. INVALID_ARGUMENT
  // (BAD_REQUEST): the prefix is a root of checkpoints, or below one.
  absl::Status Open(const std::function<bool(std::string_view name)>& is_output) override;
  absl::StatusOr<bool> TakeFinished(const std::string&, uint64_t, const std::function<bool()>&) override {
    return false;
  }
  // INVALID_ARGUMENT (BAD_REQUEST): the file needs more pieces than a store takes.
  absl::StatusOr<std::unique_ptr<OutputFile>> Begin(const std::string& name, uint64_t bytes) override;
  absl::Status Add(const std::string& name, std::string_view bytes) override;
  absl::Status Copy(const std::string& name, const std::string& source) override;
  absl::Status Publish() override;
  absl::Status Abandon(const absl::Status& error) override { return error; }

 private:
  struct File {
    std::string name;
    std::unique_ptr<FileWriter> writer;  // null: a small file
    std::string bytes;                   // of a small file
  };

  std::string PathOf(const std::string& name) const;
  absl::Status CheckOutsideRoots() const;
  // ALREADY_EXISTS (OUTPUT_EXISTS): such a file stands there.
  absl::Status CheckFree(const std::function<bool(std::string_view name)>& is_in_the_way);

  const std::shared_ptr<Storage> storage_;
  const std::string directory_;  // "" is all of the storage
  bool done_ = false;
  std::vector<File> files_;         // as they were made
  std::vector<std::string> added_;  // the paths of small files that Publish has put
};

}  // namespace cairn

#endif  // CAIRN_FOREIGN_WRITE_OUTPUT_PREFIX_H_

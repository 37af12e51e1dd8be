// Where an export is written: a directory of this machine, or a prefix in an object store.
#ifndef CAIRN_FOREIGN_WRITE_EXPORT_OUTPUT_H_
#define CAIRN_FOREIGN_WRITE_EXPORT_OUTPUT_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace cairn {

// A large file is written in pieces of this many bytes.
inline constexpr uint64_t kOutputPieceBytes = uint64_t{8} << 20;

// A file of an export while it is written.
class OutputFile {
 public:
  virtual ~OutputFile() = default;

  // Writes a piece at `offset`, which is a multiple of ExportOutput::step(), as is the length of all pieces but the
  // last. `bytes` begins at a multiple of kIoAlignment, and the memory behind it can be read up to the next such
  // multiple. Pieces may come in any order. Thread-safe.
  virtual absl::Status Write(uint64_t offset, std::string_view bytes) = 0;
  // Ends the file, which has all its pieces now. `crc32c` is that of all bytes that Write was given.
  virtual absl::Status Finish(uint32_t crc32c) = 0;
};

// The destructor removes the files, unless Publish has succeeded or Abandon has kept them. Not thread-safe. Methods
// fail with the errors of storage too.
class ExportOutput {
 public:
  virtual ~ExportOutput() = default;

  // Returns kIoAlignment or kOutputPieceBytes: object stores want large parts.
  virtual uint64_t step() const = 0;

  // Must be called before the methods below. ALREADY_EXISTS (OUTPUT_EXISTS): a file of a checkpoint of any library
  // stands there, or a file for whose name `is_output` returns true, or another export is writing there.
  virtual absl::Status Open(const std::function<bool(std::string_view name)>& is_output) = 0;
  // Returns true if an earlier export of the same identity has finished the file with this length in bytes, so that it
  // need not be written. CANCELLED (INTERRUPTED): `interrupted`, which may be null, returned true.
  virtual absl::StatusOr<bool> TakeFinished(const std::string& name, uint64_t bytes,
                                            const std::function<bool()>& interrupted) = 0;
  // Begins a large file. It must be destroyed before the output. RESOURCE_EXHAUSTED (NO_SPACE).
  virtual absl::StatusOr<std::unique_ptr<OutputFile>> Begin(const std::string& name, uint64_t bytes) = 0;
  // Makes a small file.
  virtual absl::Status Add(const std::string& name, std::string_view bytes) = 0;
  // Makes a file with the bytes of the file at `source`.
  virtual absl::Status Copy(const std::string& name, const std::string& source) = 0;

  // Gives the files their names, in the order in which they were made. The last file gets its name when all others are
  // durable under theirs. ALREADY_EXISTS (OUTPUT_EXISTS): somebody else has made a file of that name meanwhile.
  virtual absl::Status Publish() = 0;
  // Must be called when the export has failed with `error`. Returns the error that the user is told: it says what was
  // kept.
  virtual absl::Status Abandon(const absl::Status& error) = 0;
};

// Returns whether a file of this name belongs to a checkpoint. If checkpoints of two libraries are in one directory, it
// depends on chance which one is read.
bool IsOfACheckpoint(std::string_view name);

}  // namespace cairn

#endif  // CAIRN_FOREIGN_WRITE_EXPORT_OUTPUT_H_

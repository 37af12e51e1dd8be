// The bytes of a file: as they are, or decompressed if it begins as gzip or Zstandard files do.
#ifndef CAIRN_CORPUS_BPE_TEXT_INPUT_H_
#define CAIRN_CORPUS_BPE_TEXT_INPUT_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace cairn::corpus {

// Not thread-safe.
class TextInput {
 public:
  // `path` may be "-" for standard input.
  // NOT_FOUND (INPUT_UNREADABLE): it cannot be opened or is a directory.
  static absl::StatusOr<std::unique_ptr<TextInput>> Open(const std::string& path);
  ~TextInput();
  TextInput(const TextInput&) = delete;
  TextInput& operator=(const TextInput&) = delete;

  // Reads up to `size` bytes, more than 0; 0 only at the end.
  // NOT_FOUND (INPUT_UNREADABLE): the disk failed, or the compressed data is damaged or cut off.
  absl::StatusOr<size_t> Read(char* out, size_t size);
  // Goes to this offset of the (decompressed) bytes; call it before the first Read.
  // NOT_FOUND (INPUT_UNREADABLE): the file is shorter.
  absl::Status Skip(uint64_t bytes);

  // Bytes of the file itself that were read: for progress.
  uint64_t file_bytes_read() const { return file_bytes_read_; }

 private:
  struct Decoder;

  TextInput(std::string path, int fd);
  absl::StatusOr<size_t> ReadFile(char* out, size_t size);
  absl::Status Failed(const std::string& what) const;

  std::string path_;
  int fd_;
  uint64_t file_bytes_read_ = 0;
  std::string head_;  // the first bytes, read to recognise the format
  size_t head_used_ = 0;
  std::unique_ptr<Decoder> decoder_;
};

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_BPE_TEXT_INPUT_H_

// Makes the zip archives that torch.save writes: one value, or one tensor.
//
// Format: PyTorch's torch/serialization.py and caffe2/serialize/inline_container.cc; PKWARE's APPNOTE.TXT.
#ifndef CAIRN_FOREIGN_WRITE_TORCH_TORCH_ARCHIVE_WRITER_H_
#define CAIRN_FOREIGN_WRITE_TORCH_TORCH_ARCHIVE_WRITER_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/tensor/dtype.h"
#include "foreign/write/torch/pickle_writer.h"

namespace cairn {

// One file within an archive.
struct TorchArchiveRecord {
  std::string path;
  uint64_t offset = 0;  // of its header in the archive
  uint64_t bytes = 0;
  uint32_t crc32 = 0;
};

// The archive of a tensor whose elements lie row-major. Its bytes are `head`, the elements, and what Tail returns. The
// elements begin at a multiple of 64 bytes.
class TorchTensorArchive {
 public:
  // The elements take less than 4 GiB.
  TorchTensorArchive(DType dtype, std::span<const int64_t> shape);

  const std::string& head() const { return head_; }
  uint64_t data_bytes() const { return data_bytes_; }
  uint64_t bytes() const { return head_.size() + data_bytes_ + Tail(0).size(); }
  // `crc32` is the CRC-32 of the elements, as zip uses it (ISO 3309). The length of the tail does not depend on it.
  std::string Tail(uint32_t crc32) const;

 private:
  std::string head_;
  uint64_t data_bytes_ = 0;
  std::vector<TorchArchiveRecord> records_;  // the records of the head; the last one is the record of the elements
};

// Adds the opcodes that push a tensor whose row-major elements are the archive's record data/STORAGE.
void WriteTorchTensor(DType dtype, std::span<const int64_t> shape, std::string_view storage, PickleWriter& pickle);

// Returns the archive of a value, from its pickle and the bytes of data/0, data/1 and so on; less than 2 GiB together.
std::string TorchValueArchive(std::string_view pickle, std::span<const std::string_view> storages);

}  // namespace cairn

#endif  // CAIRN_FOREIGN_WRITE_TORCH_TORCH_ARCHIVE_WRITER_H_

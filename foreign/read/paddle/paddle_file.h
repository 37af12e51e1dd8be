// Reads files that paddle.save wrote: pickles that hold arrays of numpy.
//
// Format: paddle/framework/io.py of Paddle 3, with its default protocol 4.
#ifndef CAIRN_FOREIGN_READ_PADDLE_PADDLE_FILE_H_
#define CAIRN_FOREIGN_READ_PADDLE_PADDLE_FILE_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/format/manifest.h"
#include "foreign/read/pickle/pickle_document.h"
#include "foreign/read/source/foreign_file.h"
#include "foreign/read/source/strided_tensor.h"

namespace cairn {

// One such file. It holds the values in memory, but not the elements of the arrays.
class PaddleFile {
 public:
  // Reads the pickle at the begin of a file, which is untrusted. `file` must outlive the call only. Fails as
  // OutlinePickle and ReadPickle do.
  static absl::StatusOr<PaddleFile> Open(const ForeignFile& file);

  const PickleDocument& document() const { return *document_; }
  // Returns the tensor that a value describes; nothing for another value. An array of uint16 is a tensor of bfloat16:
  // Paddle has no uint16, and writes bfloat16 as such. Fails as NumpyArray does.
  absl::StatusOr<std::optional<StridedTensor>> Tensor(PickleValue value) const;

 private:
  std::string path_;
  std::unique_ptr<std::string> outline_;  // document_ points into it
  std::unique_ptr<PickleDocument> document_;
};

// Returns true if a file begins as a pickle, not as an archive of torch.save.
bool IsPickle(const std::string& path);

// Reads the tensors of a `.pdparams` or `.pdopt` file at a resolved path (ResolvePath). Fails as
// PaddleFile::Open and ReadTensorTree do.
absl::StatusOr<Manifest> ReadPaddleFile(const std::string& path, std::vector<std::string>* left_out = nullptr);

}  // namespace cairn

#endif  // CAIRN_FOREIGN_READ_PADDLE_PADDLE_FILE_H_

// Writes packs of samples as the Parquet file that Megatron-Bridge's GPTSFTPackedParquetDataset reads, byte for byte as
// its write_packed_parquet with the same pyarrow: the columns input_ids, loss_mask and seq_start_id, and row groups of
// 500 packs. Groups of packs whose tokens are more than 2^24 end earlier.
#ifndef CAIRN_CORPUS_SFT_PACKED_PARQUET_H_
#define CAIRN_CORPUS_SFT_PACKED_PARQUET_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "corpus/io/output_file.h"
#include "corpus/io/python_process.h"

namespace cairn::corpus {

// Only one thread may use it at a time. It holds one row group, at most about 150 MiB; its process has a limit of 2
// GiB.
class PackedParquet {
 public:
  // `output` must outlive it. UNSUPPORTED: Python or pyarrow is missing. Else as PythonProcess.
  static absl::StatusOr<std::unique_ptr<PackedParquet>> Start(OutputFile& output, const std::atomic<bool>* stop);

  // Begins a pack; then its samples follow.
  absl::Status BeginPack();
  // Each token is an id; the highest bit says that it is trained on. The mask is moved by one token, because it is for
  // the token that is predicted.
  void AddSample(const std::vector<uint32_t>& tokens);
  // Writes what is left. The caller commits the output. MEMORY_LIMIT; else as OutputFile::Append and PythonProcess.
  absl::Status Finish();

  static constexpr uint32_t kTrained = uint32_t{1} << 31;

 private:
  PackedParquet(OutputFile& output, std::unique_ptr<PythonProcess> process)
      : output_(output), process_(std::move(process)) {}
  absl::Status Flush();
  absl::Status TakeBytes();

  OutputFile& output_;
  const std::unique_ptr<PythonProcess> process_;
  // The first token and the first sample of each pack of the row group.
  std::vector<int32_t> first_tokens_, first_samples_;
  std::vector<int32_t> ids_, starts_;
  std::vector<int8_t> mask_;
};

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_SFT_PACKED_PARQUET_H_

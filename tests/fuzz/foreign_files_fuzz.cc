#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "foreign/read/dcp/dcp_metadata.h"
#include "foreign/read/deepspeed/deepspeed_states.h"
#include "foreign/read/deepspeed/parallel_rules.h"
#include "foreign/read/paddle/numpy_array.h"
#include "foreign/read/paddle/paddle_metadata.h"
#include "foreign/read/pickle/pickle.h"
#include "foreign/read/pickle/pickle_outline.h"
#include "foreign/read/torch/torch_file.h"
#include "foreign/read/torch/torch_value.h"

namespace {

// A document that is accepted can be walked over, and took no more of the input than there is.
void TryPickle(std::string_view bytes) {
  const auto document = cairn::ReadPickle(bytes, "fuzz", {.memory_bytes = uint64_t{64} << 20});
  if (!document.ok()) return;
  if (document->consumed() > bytes.size()) std::abort();
  if (const auto value = cairn::EncodeValue(*document, document->root(), "fuzz"); value.ok() && value->empty()) {
    std::abort();
  }
}

// Slices that a file says how to merge make up each element of the parameter at most once, and inside of it.
void TryParallelModel(const cairn::TorchFile& file) {
  auto model = cairn::ReadDeepSpeedModel(file);
  if (!model.ok() || !model->parallel) return;
  const auto rules = cairn::ParallelRules::Create(*std::move(model->parallel));
  if (!rules.ok()) return;
  const std::vector<cairn::Shape> slices = {{4, 6}, {4, 6}};
  for (const char* name : {"w", "layers.1.weight"}) {
    const auto merged = rules->Merge(name, slices);
    if (!merged.ok()) continue;
    int64_t elements = 0;
    for (uint32_t part = 0; part < slices.size(); ++part) {
      std::vector<cairn::BoxAt> boxes;
      if (!cairn::AppendMerged(*merged, part, {cairn::WholeBox(slices[part]), 0}, 1000, boxes)) continue;
      for (const cairn::BoxAt& each : boxes) {
        if (!cairn::Contains(merged->shape, each.box) || each.offset < 0 || each.offset + each.box.size() > 24) {
          std::abort();
        }
        elements += each.box.size();
      }
    }
    if (elements > cairn::ElementCount(merged->shape)) std::abort();
  }
}

// A tensor that is accepted lies inside of its archive, in pieces that are as large as it is.
void TryTorchFile(std::string_view bytes) {
  const cairn::ReadRange read = [&](uint64_t offset, uint64_t length) -> absl::StatusOr<std::string> {
    if (length > bytes.size() || offset > bytes.size() - length) std::abort();
    return std::string(bytes.substr(offset, length));
  };
  const auto file = cairn::TorchFile::Open(bytes.size(), read, "fuzz");
  if (!file.ok()) return;
  TryParallelModel(*file);
  (void)cairn::ReadDeepSpeedLayer(*file).ok();
  (void)cairn::ReadDeepSpeedOptimizer(*file).ok();
  const auto tensor = file->Tensor(file->document().root());
  if (!tensor.ok() || !tensor->has_value()) return;
  const auto pieces = (*tensor)->Pieces(1000);
  if (!pieces) return;
  int64_t elements = 0;
  for (const auto& piece : *pieces) {
    if (!cairn::Contains((*tensor)->shape, piece.box)) std::abort();
    const uint64_t end = piece.offset + static_cast<uint64_t>(piece.box.size() * cairn::BytesOf((*tensor)->dtype));
    if (end > bytes.size()) std::abort();
    elements += piece.box.size();
  }
  if (elements != cairn::ElementCount((*tensor)->shape)) std::abort();
}

// Metadata that is accepted has entries inside of their tensors, in order and without overlaps.
void TryMetadata(std::string_view bytes) {
  const auto metadata = cairn::ReadDcpMetadata(bytes, "fuzz");
  if (!metadata.ok()) return;
  for (size_t i = 0; i < metadata->entries.size(); ++i) {
    const cairn::DcpEntry& entry = metadata->entries[i];
    if (entry.file >= metadata->files.size()) std::abort();
    if (i > 0 && metadata->entries[i - 1].file == entry.file &&
        metadata->entries[i - 1].offset + metadata->entries[i - 1].bytes > entry.offset) {
      std::abort();
    }
    if (entry.tensor == cairn::DcpEntry::kNoTensor) continue;
    const auto offset = metadata->offset_of(entry);
    const auto shape = metadata->shape_of(entry);
    const cairn::Box box = {{offset.begin(), offset.end()}, {shape.begin(), shape.end()}};
    if (!cairn::Contains(metadata->tensors[entry.tensor].global_shape, box)) std::abort();
  }
  for (const std::string& name : metadata->files) {
    if (name.empty() || name.front() == '/' || name == ".." || name.starts_with("../")) std::abort();
  }
}

// An array that is accepted lies inside of its file and is as large as its shape says.
void TryArrays(std::string_view bytes) {
  const cairn::ReadRange read = [&](uint64_t offset, uint64_t length) -> absl::StatusOr<std::string> {
    if (length > bytes.size() || offset > bytes.size() - length) std::abort();
    return std::string(bytes.substr(offset, length));
  };
  const auto outline = cairn::OutlinePickle(bytes.size(), read, "fuzz", uint64_t{1} << 20);
  if (!outline.ok()) return;
  const auto document = cairn::ReadPickle(*outline, "fuzz", {.memory_bytes = uint64_t{64} << 20});
  if (!document.ok()) return;
  const auto look = [&](cairn::PickleValue value) {
    const auto array = cairn::NumpyArray(*document, value, "fuzz");
    if (!array.ok() || !array->has_value()) return;
    const auto elements = cairn::ElementCount((*array)->shape);
    if (!elements.has_value()) std::abort();
    const auto length = static_cast<uint64_t>(*elements * cairn::BytesOf((*array)->dtype));
    if (length > bytes.size() || (*array)->offset > bytes.size() - length) std::abort();
  };
  look(document->root());
  document->ForEach(document->root(), look);
}

// Metadata that is accepted has shards inside of their tensors, in files below the directory.
void TryPaddleMetadata(std::string_view bytes) {
  const auto metadata = cairn::ReadPaddleMetadata(bytes, "fuzz");
  if (!metadata.ok()) return;
  for (const cairn::PaddleShard& shard : metadata->shards) {
    if (shard.file >= metadata->files.size() || shard.tensor >= metadata->tensors.size()) std::abort();
    const cairn::Box box = metadata->box_of(shard);
    if (!cairn::Contains(metadata->tensors[shard.tensor].global_shape, box)) std::abort();
    if (shard.flat && (shard.flat->begin < 0 || shard.flat->end > box.size())) std::abort();
  }
  for (const std::string& name : metadata->files) {
    if (name.empty() || name.front() == '/' || name == ".." || name.starts_with("../")) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  TryPickle(bytes);
  TryTorchFile(bytes);
  TryMetadata(bytes);
  TryArrays(bytes);
  TryPaddleMetadata(bytes);
  (void)cairn::EncodeTorchValue(bytes, "fuzz").ok();
  return 0;
}

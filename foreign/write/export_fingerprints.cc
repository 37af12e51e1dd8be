#include "foreign/write/export_fingerprints.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "common/resources/thread.h"
#include "common/tensor/fingerprint.h"

namespace cairn {
namespace {

uint64_t WidthOf(const WholeTensor& tensor) { return static_cast<uint64_t>(BytesOf(tensor.plain.dtype)); }

int64_t ElementsOf(const WholeTensor& tensor) { return *ElementCount(tensor.plain.shape); }

// Returns the parts of the stored tensor's fingerprint if `tensor` has its bytes.
std::optional<uint64_t> StoredParts(const Manifest& manifest, const WholeTensor& tensor) {
  if (tensor.links.size() != 1) return std::nullopt;
  const AxisMap& link = tensor.links.front();
  if (link.source >= manifest.summaries.size() || link.is_cast() || !link.straight()) return std::nullopt;
  const ManifestTensor& stored = manifest.tensors[link.source];
  if (stored.dtype != tensor.plain.dtype || link.source_box().shape != stored.global_shape ||
      link.target_box().shape != tensor.plain.shape) {
    return std::nullopt;
  }
  return manifest.summaries[link.source].fingerprint_parts;
}

}  // namespace

ExportFingerprints::ExportFingerprints(const Manifest& manifest, std::span<const WholeTensor> tensors)
    : tensors_(tensors), entries_(tensors.size()) {
  for (size_t i = 0; i < tensors.size(); ++i) {
    const std::optional<uint64_t> stored = StoredParts(manifest, tensors[i]);
    entries_[i].known = stored.has_value();
    entries_[i].parts = stored.value_or(0);
  }
}

absl::Status ExportFingerprints::Add(std::span<const TensorPart> parts, const char* window, int threads) {
  std::vector<TensorPart> unknown;
  for (const TensorPart& part : parts) {
    Entry& entry = entries_[static_cast<size_t>(part.tensor - tensors_.data())];
    if (entry.known || part.begin == part.end) continue;
    unknown.push_back(part);
    if (!entry.come.empty() && entry.come.back().second == part.begin) {
      entry.come.back().second = part.end;
    } else {
      entry.come.emplace_back(part.begin, part.end);
    }
  }
  std::vector<uint64_t> values(unknown.size());
  const absl::Status added = ForEachOnThreads("to compute fingerprints", unknown.size(), threads, [&](size_t i, int) {
    const TensorPart& part = unknown[i];
    const Shape& shape = part.tensor->plain.shape;
    const uint64_t width = WidthOf(*part.tensor);
    FingerprintPart value(shape, WholeBox(shape), {part.begin, part.end}, static_cast<int>(width));
    value.Add(window + part.at, static_cast<uint64_t>(part.end - part.begin) * width);
    values[i] = value.Value();
    return absl::OkStatus();
  });
  for (size_t i = 0; i < unknown.size(); ++i) {
    entries_[static_cast<size_t>(unknown[i].tensor - tensors_.data())].parts ^= values[i];
  }
  return added;
}

std::vector<TensorPart> ExportFingerprints::Missing(uint64_t most_bytes) const {
  std::vector<TensorPart> missing;
  for (size_t i = 0; i < tensors_.size(); ++i) {
    if (entries_[i].known) continue;
    const auto piece = static_cast<int64_t>(std::max<uint64_t>(most_bytes / WidthOf(tensors_[i]), 1));
    auto come = entries_[i].come;
    std::ranges::sort(come);
    come.emplace_back(ElementsOf(tensors_[i]), 0);
    int64_t at = 0;
    for (const auto& [begin, end] : come) {
      for (; at < begin; at = std::min(at + piece, begin)) {
        missing.push_back({&tensors_[i], at, std::min(at + piece, begin), 0});
      }
      at = std::max(at, end);
    }
  }
  return missing;
}

std::string ExportFingerprints::Text(std::span<const std::pair<std::string, uint32_t>> second_names) const {
  nlohmann::json texts = nlohmann::json::object();
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const uint64_t bytes = static_cast<uint64_t>(ElementsOf(tensors_[i])) * WidthOf(tensors_[i]);
    texts[tensors_[i].plain.name] = FingerprintText(FingerprintFromParts(entries_[i].parts, bytes));
  }
  for (const auto& [name, tensor] : second_names) {
    std::string text = texts[tensors_[tensor].plain.name];
    texts[name] = std::move(text);
  }
  return texts.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace cairn

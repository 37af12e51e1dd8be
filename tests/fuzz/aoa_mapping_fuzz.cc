// Builds mappings from any statements over a fixed set of tensors. The first byte chooses direction and options. A
// mapping that is accepted must answer every output, and the parts of an answer must tile the box that was asked for.
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "mapping/mapping.h"
#include "mapping/report.h"

namespace {

using namespace cairn::aoa;  // NOLINT: the whole file is about it
using cairn::DType;
using cairn::Shape;

ShardDesc Shard(std::string_view key, Shape global, Shape local, Shape offset, DType dtype = DType::kFloat32) {
  return {.key = key, .local_shape = local, .global_shape = global, .global_offset = offset, .dtype = dtype};
}

ShardDesc Whole(std::string_view key, Shape shape) { return Shard(key, shape, shape, Shape(shape.size(), 0)); }

const std::vector<ShardDesc>& Tensors() {
  static const auto* tensors = new std::vector<ShardDesc>{Whole("l.0.w", {2, 4}),
                                                          Whole("l.1.w", {2, 4}),
                                                          Whole("l.0.e.0.w", {2, 2}),
                                                          Whole("l.0.e.1.w", {2, 2}),
                                                          Whole("l.0.e.10.w", {2, 2}),
                                                          Whole("m.0.w", {2, 4}),
                                                          Whole("a", {2, 4}),
                                                          Whole("q", {2, 8}),
                                                          Whole("k", {2, 4}),
                                                          Whole("v", {2, 4}),
                                                          Whole("gate", {2, 4}),
                                                          Whole("up", {2, 4}),
                                                          Whole("s", {6, 4}),
                                                          Whole("u", {3}),
                                                          Whole("a.w_0", {2, 4}),
                                                          Whole("scalar", {}),
                                                          Whole("empty", {0, 4}),
                                                          Shard("f", {2, 16}, {2, 8}, {0, 0}),
                                                          Shard("f", {2, 16}, {2, 8}, {0, 8}),
                                                          Shard("h", {2, 8}, {2, 4}, {0, 0}),
                                                          Shard("h", {2, 8}, {2, 4}, {0, 4})};
  return *tensors;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 1 || size > 4096) return 0;
  Config config;
  config.statements = {std::string(reinterpret_cast<const char*>(data) + 1, size - 1)};
  config.reverse = (data[0] & 1) != 0;
  config.legacy_qkv = (data[0] & 2) != 0;
  config.allow_missing = (data[0] & 4) != 0;
  std::optional<std::span<const ShardDesc>> destination;
  if ((data[0] & 8) != 0) destination = Tensors();
  std::vector<MappingError> errors;
  size_t total = 0;
  const auto mapped = BuildMapping(config, Tensors(), destination, &errors, &total);
  if (!mapped.ok()) {
    if (errors.empty() || total < errors.size()) std::abort();
    return 0;
  }
  for (const Output& output : mapped->outputs()) {
    if (output.variable == kNoVariable) continue;
    const auto view = mapped->variables().shape(output.variable);
    const Shape shape(view.begin(), view.end());
    ShardDesc target = Whole(mapped->Text(output.name), shape);
    target.dtype = DType::kUnspecified;
    std::vector<Entry> entries;
    // Resolve may refuse a tensor only if its shape is not the declared one.
    if (!mapped->Resolve(target, entries).ok()) continue;
    int64_t elements = 0;
    for (const Entry& entry : entries) {
      if (!cairn::Contains(shape, entry.target) || !cairn::Contains(entry.source_shape, entry.source) ||
          entry.target.size() != entry.source.size()) {
        std::abort();
      }
      elements += entry.target.size();
    }
    if (elements != cairn::WholeBox(shape).size()) std::abort();
  }
  if (FormatReport(MakeReport(*mapped, destination)).empty()) std::abort();
  return 0;
}

#include "export/export_plan.h"

#include <algorithm>
#include <cctype>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn {
namespace {

constexpr size_t kNamesTold = 5;

absl::Status CheckDtypes(const std::vector<WholeTensor>& tensors) {
  std::string told;
  size_t count = 0;
  for (const WholeTensor& tensor : tensors) {
    if (!PlainDtypeName(tensor.plain.dtype).empty()) continue;
    if (++count <= kNamesTold) {
      absl::StrAppend(&told, count == 1 ? "" : ", ", tensor.plain.name, " (", std::string(NameOf(tensor.plain.dtype)),
                      ")");
    }
  }
  if (count == 0) return absl::OkStatus();
  if (count > kNamesTold) absl::StrAppend(&told, " and ", count - kNamesTold, " more");
  return MakeError(Reason::kUnsupported, absl::StrCat("safetensors has no dtype for ", told, "; leave them out"),
                   {{"names", told}});
}

}  // namespace

bool NaturallyLess(std::string_view a, std::string_view b) {
  const auto digit = [](char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; };
  size_t i = 0, j = 0;
  while (i < a.size() && j < b.size()) {
    if (digit(a[i]) && digit(b[j])) {
      size_t ei = i, ej = j;
      while (ei < a.size() && digit(a[ei])) ++ei;
      while (ej < b.size() && digit(b[ej])) ++ej;
      size_t si = i, sj = j;
      while (si + 1 < ei && a[si] == '0') ++si;
      while (sj + 1 < ej && b[sj] == '0') ++sj;
      if (ei - si != ej - sj) return ei - si < ej - sj;
      const int order = a.substr(si, ei - si).compare(b.substr(sj, ej - sj));
      if (order != 0) return order < 0;
      i = ei;
      j = ej;
    } else if (a[i] != b[j]) {
      return static_cast<unsigned char>(a[i]) < static_cast<unsigned char>(b[j]);
    } else {
      ++i;
      ++j;
    }
  }
  const size_t left_a = a.size() - i, left_b = b.size() - j;
  return left_a != left_b ? left_a < left_b : a < b;
}

absl::StatusOr<ExportPlan> MakeExportPlan(const Manifest& manifest, const ExportOptions& options) {
  ExportPlan plan;
  CAIRN_ASSIGN_OR_RETURN(plan.tensors, ChooseTensors(manifest, options.choice));
  if (plan.tensors.empty()) {
    return MakeError(Reason::kBadRequest,
                     absl::StrCat("nothing to export: none of the ", manifest.tensors.size(), " tensors is left"));
  }
  CAIRN_RETURN_IF_ERROR(CheckDtypes(plan.tensors));
  std::sort(plan.tensors.begin(), plan.tensors.end(),
            [](const WholeTensor& a, const WholeTensor& b) { return NaturallyLess(a.plain.name, b.plain.name); });
  const auto bytes_of = [](const PlainTensor& tensor) {
    return static_cast<uint64_t>(*ElementCount(tensor.shape)) * static_cast<uint64_t>(BytesOf(tensor.dtype));
  };
  for (uint32_t i = 0; i < plan.tensors.size(); ++i) {
    const uint64_t bytes = bytes_of(plan.tensors[i].plain);
    if (plan.files.empty() ||
        (plan.files.back().data_bytes > 0 && plan.files.back().data_bytes + bytes > options.max_shard_bytes)) {
      plan.files.emplace_back();
    }
    plan.files.back().tensors.push_back(i);
    plan.files.back().data_bytes += bytes;
    plan.total_bytes += bytes;
  }
  PlainIndex index;
  index.total_size = plan.total_bytes;
  for (size_t f = 0; f < plan.files.size(); ++f) {
    ExportFile& file = plan.files[f];
    file.name = absl::StrFormat("model-%05d-of-%05d.safetensors", f + 1, plan.files.size());
    // Wide elements come first, so that all elements are aligned.
    std::stable_sort(file.tensors.begin(), file.tensors.end(), [&](uint32_t a, uint32_t b) {
      return BytesOf(plan.tensors[a].plain.dtype) > BytesOf(plan.tensors[b].plain.dtype);
    });
    std::vector<PlainTensor> plain;
    uint64_t begin = 0;
    for (uint32_t number : file.tensors) {
      PlainTensor& tensor = plan.tensors[number].plain;
      tensor.begin = begin;
      tensor.end = begin += bytes_of(tensor);
      plain.push_back(tensor);
      index.weight_map.emplace_back(tensor.name, file.name);
    }
    file.header = RenderPlainHeader(plain);
  }
  std::sort(index.weight_map.begin(), index.weight_map.end());
  plan.index = RenderPlainIndex(index);
  return plan;
}

}  // namespace cairn
